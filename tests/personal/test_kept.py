"""The vectors of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scripted import floats

from sparsona.message import Vector
from sparsona.personal.kept import leaves, with_leaves


@dataclass(frozen=True)
class Gated:
    """A model of several vectors, of which one is no weights."""

    weights: Vector
    gates: tuple[Vector, ...]
    order: Any
    budget: float

    def predict(self, forward: Any, inputs: Any) -> Any:
        return inputs


MODEL = Gated(floats(1, 2), (floats(3), floats(4)), np.array([5]), 0.5)


def test_only_float_vectors_count_in_the_order_of_fields() -> None:
    assert [leaf.tolist() for leaf in leaves(MODEL)] == [[1, 2], [3], [4]]


def test_other_vectors_take_their_places_and_all_else_stays() -> None:
    other = with_leaves(MODEL, (floats(0, 0), floats(7), floats(8)))
    assert isinstance(other, Gated)
    assert [leaf.tolist() for leaf in leaves(other)] == [[0, 0], [7], [8]]
    assert (other.order.tolist(), other.budget) == ([5], 0.5)


def test_vectors_that_do_not_fit_change_nothing() -> None:
    assert with_leaves(MODEL, (floats(0, 0),)) is MODEL
