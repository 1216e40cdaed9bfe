"""Sparse ternary compression."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.ops.ternary import as_sparse, ternarise, ternary_bits

LAYOUT = Layout.of(nn.Linear(4, 2))


def test_signs_times_the_mean_magnitude_of_each_tensor() -> None:
    vector = np.array([1, -9, 2, 7, 0, 0, 0.5, -3, 0.25, -0.75], np.float32)
    part = ternarise(vector, LAYOUT, 0.7)
    assert part.indices.tolist() == [1, 3, 9], "2 of 8 and 1 of 2: round half up leaves out 6 and 1"
    assert part.dense().tolist() == [0, -8, 0, 8, 0, 0, 0, 0, 0, -0.75]
    assert np.array_equal(as_sparse(part, LAYOUT).dense(), part.dense())


def test_nothing_to_send() -> None:
    part = ternarise(np.zeros(10, np.float32), LAYOUT, 0.9)
    assert len(part.indices) == 0
    assert not part.dense().any()


def test_buffers_are_left_out() -> None:
    layout = Layout.of(nn.BatchNorm1d(2))
    assert ternarise(np.ones(8, np.float32), layout, 0.0).indices.tolist() == [0, 1, 2, 3]


def test_another_layout_is_refused() -> None:
    with pytest.raises(WireError, match="expected"):
        as_sparse(ternarise(np.zeros(10, np.float32), LAYOUT, 0.9), Layout.of(nn.Linear(2, 4)))


def test_the_estimate_of_bits_is_near_the_wire() -> None:
    from sparsona.message import Message
    from sparsona.wire import encode

    layout = Layout.of(nn.Linear(300, 100))
    part = ternarise(np.random.default_rng(0).normal(size=layout.size).astype(np.float32), layout, 0.9)
    real = 8 * len(encode(Message(update=part), layout.lengths).data)
    assert ternary_bits([part]) == pytest.approx(real, rel=0.05)
