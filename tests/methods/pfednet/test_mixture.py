"""y = A x + B z: the three layouts, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.methods.pfednet.mixture import mixture_of

NET = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
LAYOUT = Layout.of(NET)


@pytest.mark.parametrize("kind", ["personal", "split", "additive"])
def test_the_start_is_the_initial_model(kind: str) -> None:
    mixture = mixture_of(kind, LAYOUT)  # type: ignore[arg-type]
    initial = np.arange(LAYOUT.size, dtype=np.float32)
    np.testing.assert_array_equal(mixture.model(*mixture.start(initial)), initial)


@pytest.mark.parametrize("kind", ["personal", "split", "additive"])
def test_selections_are_orthonormal(kind: str) -> None:
    mixture = mixture_of(kind, LAYOUT)  # type: ignore[arg-type]
    for chosen in (mixture.shared, mixture.own):
        matrix = np.zeros((LAYOUT.size, len(chosen)))
        matrix[chosen, np.arange(len(chosen))] = 1
        np.testing.assert_array_equal(matrix.T @ matrix, np.eye(len(chosen)))
        assert (matrix.sum(1) <= 1).all()


def test_layers_by_name_and_by_share() -> None:
    head = mixture_of("split", LAYOUT)
    assert head.own.tolist() == list(range(16, 26))
    assert mixture_of("split", LAYOUT, "2").own.tolist() == head.own.tolist()
    assert mixture_of("split", LAYOUT, "0.bias+2.bias").own.tolist() == [12, 13, 14, 15, 24, 25]
    assert mixture_of("split", LAYOUT, 0.4).own.tolist() == head.own.tolist()
    assert mixture_of("split", LAYOUT, 0.01).own.tolist() == [24, 25]


def test_additive_adds() -> None:
    mixture = mixture_of("additive", LAYOUT)
    ones = np.ones(LAYOUT.size, np.float32)
    assert (mixture.model(ones, 2 * ones) == 3).all()


def test_buffers_are_neither_shared_nor_personal() -> None:
    layout = Layout.of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    for kind in ("personal", "split", "additive"):
        mixture = mixture_of(kind, layout)
        assert {*mixture.shared.tolist(), *mixture.own.tolist()} == set(range(4 + 2 + 2 + 2))


def test_clear_errors() -> None:
    with pytest.raises(InputError, match="no layer or tensor 'head'"):
        mixture_of("split", LAYOUT, "head")
    with pytest.raises(InputError, match="choose layout=personal"):
        mixture_of("split", LAYOUT, "0+2")
    with pytest.raises(InputError, match="choose layout=personal"):
        mixture_of("split", Layout.of(nn.Linear(2, 2)))
