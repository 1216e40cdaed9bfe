"""Element-wise aggregation by the paper's own numbers."""

from __future__ import annotations

import numpy as np

from sparsona.message import Sparse, Vector
from sparsona.ops.elementwise import elementwise_mean


def sparse(*values: float) -> Sparse:
    vector = np.array(values, np.float32)
    return Sparse.take(vector, np.flatnonzero(vector))


def mean(weights: list[float], *replies: Sparse, absent: bool = False) -> list[float]:
    found: Vector = elementwise_mean(replies[0].size, zip(weights, replies, strict=True), absent)
    assert found.dtype == np.float32
    return [float(x) for x in found]


def test_alike_clients() -> None:
    replies = sparse(0, 1), sparse(2, 0), sparse(0, 3)
    assert mean([1, 1, 1], *replies) == [2, 2]
    assert np.allclose(mean([1, 1, 1], *replies, absent=True), [2 / 3, 4 / 3])


def test_clients_that_differ() -> None:
    replies = sparse(0, 2), sparse(3, 0), sparse(0, 4)
    assert mean([5, 5, 5], *replies) == [3, 3]
    assert mean([5, 5, 5], *replies, absent=True) == [1, 2]
    dense = [np.array(v, np.float32) for v in ((1, 2), (3, 2), (3, 4))]
    everything = [Sparse.take(v, np.arange(2)) for v in dense]
    assert np.allclose(mean([1, 1, 1], *everything), [7 / 3, 8 / 3])


def test_weights() -> None:
    assert mean([1, 3], sparse(4, 0), sparse(8, 0)) == [7, 0]


def test_a_zero_that_is_sent_counts_and_cancellation_stays_in() -> None:
    sent_zero = Sparse(2, np.array([0, 1]), np.array([0, 4], np.float32))
    assert mean([1, 1], sent_zero, sparse(6, 0)) == [3, 4]
    assert mean([1, 1], sparse(5, 1), sparse(-5, 0)) == [0, 1]


def test_nobody_sent_anything() -> None:
    assert mean([3], sparse(0, 0)) == [0, 0]
    assert mean([3], sparse(0, 0), absent=True) == [0, 0]
