"""Element-wise aggregation by the paper's own numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparsona.message import Sparse, Vector
from sparsona.ops import mean as robust
from sparsona.ops.mean import (
    agreeing,
    distances,
    elementwise_mean,
    elementwise_merged,
    krum,
    median,
    merged,
    trimmed_mean,
)


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


FINITE = st.floats(-1e3, 1e3, width=32)
ZERO = np.zeros(2, np.float32)


def rows(*values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


def test_the_rules_on_small_numbers() -> None:
    vectors = rows([0, 10], [2, 10], [4, 10], [6, 30], [100, -500])
    assert median(vectors).tolist() == [4, 10]
    assert median(vectors[:4]).tolist() == [3, 10]
    assert trimmed_mean(vectors, 0.2).tolist() == [4, 10]
    assert trimmed_mean(vectors, 0.4).tolist() == [4, 10]
    assert trimmed_mean(vectors, 0.0).tolist() == [np.float32(22.4), -88]
    assert distances(vectors)[0].tolist() == [0, 4, 16, 436, 10_000 + 510**2]
    # f = 1, so two neighbours count: 4 + 16, 4 + 4, 4 + 16, 404 + 416, a lot
    assert krum(vectors).tolist() == [2, 10]


def test_ten_percent_of_ten_is_one() -> None:
    """0.1 is a little more than a tenth, 0.3 a little less than three: neither may matter."""
    vectors = np.arange(10, dtype=np.float32)[:, None] ** 3
    assert trimmed_mean(vectors, 0.1)[0] == pytest.approx(sum(k**3 for k in range(1, 9)) / 8)
    assert trimmed_mean(vectors, 0.3)[0] == pytest.approx(sum(k**3 for k in range(3, 7)) / 4)


def test_rules_by_name() -> None:
    pairs = [(1.0, rows([0, 0])[0]), (3.0, rows([4, 8])[0]), (1.0, rows([5, 9])[0])]
    assert merged("mean", iter(pairs), ZERO) == pytest.approx([17 / 5, 33 / 5])
    assert merged("median", iter(pairs), ZERO).tolist() == [4, 8]
    assert merged("trimmed:0.34", iter(pairs), ZERO).tolist() == [4, 8]
    assert merged("trimmed:.1", iter(pairs), ZERO) == pytest.approx([3, 17 / 3])
    assert merged("krum", iter(pairs), ZERO).tolist() == [4, 8]


@pytest.mark.parametrize("rule", ["median", "trimmed:0.1", "krum", "agree"])
def test_one_or_two_vectors_are_enough(rule: str) -> None:
    assert merged(rule, [(1, rows([3, 4])[0])], ZERO).tolist() == [3, 4]
    assert merged(rule, [(1, rows([3, 4])[0])] * 2, ZERO).tolist() == [3, 4]


@given(hnp.arrays(np.float32, st.tuples(st.integers(5, 12), st.integers(1, 6)), elements=FINITE), st.data())
def test_a_bad_minority_cannot_leave_the_range_of_the_honest(vectors: np.ndarray, data: st.DataObject) -> None:
    """Of each coordinate: the median, and a trimmed mean that cuts as many as are bad."""
    count = len(vectors)
    bad = (count - 1) // 3
    honest = vectors[bad:]
    vectors[:bad] = data.draw(hnp.arrays(np.float32, vectors[:bad].shape, elements=st.sampled_from([-1e30, 0, 1e30])))
    for found in (median(vectors), trimmed_mean(vectors, bad / count)):
        assert (found >= honest.min(axis=0) - 1e-3).all()
        assert (found <= honest.max(axis=0) + 1e-3).all()


@given(hnp.arrays(np.float32, st.tuples(st.integers(7, 12), st.integers(1, 6)), elements=st.floats(-1, 1, width=32)))
def test_krum_chooses_an_honest_vector(honest: np.ndarray) -> None:
    bad = (len(honest) - 3) // 2 // 2
    far = np.full((bad, honest.shape[1]), 1e6, np.float32)
    assert any(np.array_equal(krum(np.concatenate([far, honest])), vector) for vector in honest)


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.just(23)), elements=FINITE))
def test_chunks_change_nothing(vectors: np.ndarray) -> None:
    whole = median(vectors), trimmed_mean(vectors, 0.2)
    chunk, robust.CHUNK = robust.CHUNK, 4
    try:
        assert (median(vectors) == whole[0]).all()
        assert (trimmed_mean(vectors, 0.2) == whole[1]).all()
    finally:
        robust.CHUNK = chunk


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=FINITE), st.permutations(range(9))
)
def test_the_order_of_the_clients_does_not_matter(vectors: np.ndarray, order: list[int]) -> None:
    shuffled = vectors[[k for k in order if k < len(vectors)]]
    assert (median(vectors) == median(shuffled)).all()
    assert np.allclose(trimmed_mean(vectors, 0.2), trimmed_mean(shuffled, 0.2), rtol=1e-6)


def test_what_the_pattern_of_the_option_takes() -> None:
    for good in ("mean", "median", "krum", "trimmed:0.1", "trimmed:.25", "trimmed:0.49"):
        assert re.match(robust.PATTERN, good)
    for bad in ("", "average", "trimmed", "trimmed:0.5", "trimmed:1", "trimmed:-0.1", "krum:3", "trimmed:0.1e9"):
        assert not re.match(robust.PATTERN, bad)


def test_a_turned_update_disagrees_however_short_it_is() -> None:
    rng = np.random.default_rng(0)
    way = rng.normal(size=50)
    honest = [(way + rng.normal(size=50)).astype(np.float32) for _ in range(7)]
    for length in (1e-3, 1.0, 3.0):
        turned = (-length * honest[0]).astype(np.float32)
        assert agreeing([*honest, turned]) == [True] * 7 + [False]
    assert agreeing([honest[0], -honest[0]]) == [True, True], "of two, neither is turned"
    start = rng.normal(size=50).astype(np.float32)
    pairs = [(k + 1.0, start + update) for k, update in enumerate(honest)]
    found = merged("agree", [*pairs, (9.0, start - honest[0])], start)
    assert found == pytest.approx(merged("mean", pairs, start), abs=1e-6), "the others count by their examples"


@pytest.mark.parametrize("rule", ["median", "trimmed:0.2", "krum", "agree"])
@pytest.mark.parametrize("absent", [False, True])
def test_rules_for_sparse_updates_are_those_of_dense_ones_where_all_send_all(rule: str, absent: bool) -> None:
    dense = np.random.default_rng(1).normal(size=(6, 9)).astype(np.float32)
    sparse = [(1.0, Sparse(9, np.arange(9), row)) for row in dense]
    expected = merged(rule, [(1.0, row) for row in dense], np.zeros(9, np.float32))
    assert elementwise_merged(rule, 9, sparse, absent) == pytest.approx(expected, abs=1e-6)


def test_the_middle_of_a_position_is_that_of_its_senders() -> None:
    sent = [([0, 2], [1, 5]), ([0, 2], [2, 6]), ([0], [90]), ([0], [3])]
    sparse = [(1.0, Sparse(4, np.array(i), np.array(v, np.float32))) for i, v in sent]
    assert elementwise_merged("median", 4, sparse).tolist() == [2.5, 0, 5.5, 0]
    assert elementwise_merged("trimmed:0.25", 4, sparse).tolist() == [2.5, 0, 5.5, 0]
    assert elementwise_merged("median", 4, sparse, absent=True).tolist() == [2.5, 0, 2.5, 0], "absent ones count as 0"
