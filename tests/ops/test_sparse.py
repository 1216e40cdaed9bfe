"""Top-k supports: the counts, the order of equals, zeros, and the contraction that error feedback rests on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparsona.errors import InputError
from sparsona.experiment import make_method
from sparsona.layout import Layout
from sparsona.message import Sparse
from sparsona.models.small import convnet2
from sparsona.ops.pairwise import cosine
from sparsona.ops.sparse import (
    Packed,
    add,
    kept,
    levels,
    powers_of_two,
    rounded,
    top_supports,
    topk_support,
    with_added,
    without,
)

VECTORS = arrays(
    np.float32, st.integers(1, 60), elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 3.0, 1e-30])
)


@pytest.mark.parametrize(
    ("size", "sparsity", "count"),
    [
        (10, 0.9, 1),
        (1, 0.9, 1),
        (1, 0.0, 1),
        (5, 0.9, 1),
        (25, 0.9, 2),
        (45, 0.7, 13),
        (7, 0.0, 7),
        (4, 0.999, 1),
        (9, 1.0, 0),
    ],
)
def test_counts_round_half_up_and_leave_one(size: int, sparsity: float, count: int) -> None:
    assert kept(size, sparsity) == count


def test_counts_of_convnet2_by_tensor() -> None:
    lengths = Layout.of(convnet2((1, 28, 28), 10)).lengths
    assert sum(lengths) == 34_826
    assert [kept(n, 0.9) for n in lengths] == [29, 3, 1843, 6, 1600, 1]


@given(VECTORS, st.integers(0, 70))
def test_the_support_is_that_of_a_stable_sort(vector: np.ndarray, count: int) -> None:
    order = np.argsort(-np.abs(vector), kind="stable")[:count]
    assert topk_support(vector, count).tolist() == sorted(i for i in order if vector[i] != 0)


def test_equals_are_taken_in_their_order_and_zeros_never() -> None:
    assert topk_support(np.array([2, -2, 2, 2], np.float32), 2).tolist() == [0, 1]
    assert topk_support(np.zeros(5, np.float32), 3).tolist() == []
    assert topk_support(np.array([0, 1, 0], np.float32), 3).tolist() == [1]


@given(arrays(np.float32, st.integers(1, 200), elements=st.floats(-8, 8, width=32)), st.sampled_from([0.0, 0.5, 0.9]))
def test_top_k_contracts(vector: np.ndarray, sparsity: float) -> None:
    count = kept(len(vector), sparsity)
    left = vector.astype(np.float64)
    whole = (left**2).sum()
    left[topk_support(vector, count)] = 0
    assert (left**2).sum() <= (1 - count / len(vector)) * whole + 1e-9


def test_spans_are_cut_apart() -> None:
    vector = np.array([1, 2, 3, 40, 50, 60, 7], np.float32)
    assert top_supports(vector, [slice(0, 3), slice(3, 6)], 0.6).tolist() == [2, 5]
    assert top_supports(vector, [slice(0, 6)], 0.6).tolist() == [4, 5]
    assert top_supports(vector, [], 0.5).tolist() == []


SPARSE = st.sets(st.integers(0, 36), max_size=37).map(
    lambda s: Sparse(37, np.array(sorted(s), np.int64), np.arange(len(s), dtype=np.float32) - 3)
)


@settings(deadline=None)  # the first call compiles
@given(SPARSE)
def test_packing_loses_nothing(sparse: Sparse) -> None:
    packed = Packed.of(sparse)
    assert len(packed.bits) == 5
    back = packed.sparse()
    assert np.array_equal(back.indices, sparse.indices)
    assert np.array_equal(back.values, sparse.values)
    start = np.full(37, 0.5, np.float32)
    assert np.array_equal(packed.added_to(start), start + sparse.dense())
    assert start.min() == 0.5 == start.max(), "the vector itself is not touched"


@given(SPARSE, SPARSE)
def test_sums(one: Sparse, other: Sparse) -> None:
    total = add(one, other)
    assert np.array_equal(total.dense(), one.dense() + other.dense())
    assert set(total.indices) == set(one.indices) | set(other.indices)


def test_cosine() -> None:
    a = np.array([0.1, -0.7, 0.3], np.float32)
    assert cosine(a, a) == 1.0
    assert cosine(a, -a) == -1.0
    assert cosine(a, np.zeros(3, np.float32)) == 0.0
    assert cosine(np.full(3, 1e-20, np.float32), a) == 0.0


def test_what_is_not_sent_stays() -> None:
    vector = np.array([1, -2, 3], np.float32)
    assert without(vector, Sparse(3, np.array([1]), np.array([-2], np.float32))).tolist() == [1, 0, 3]
    assert with_added(vector, Sparse(3, np.array([1]), np.array([-2], np.float32))).tolist() == [1, -4, 3]
    assert vector.tolist() == [1, -2, 3], "the vector itself is not touched"


sizes = st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda x: x == 0 or abs(x) > 1e-30)
numbers = st.lists(sizes, min_size=1, max_size=50)


@given(numbers)
def test_powers_of_two_are_the_nearest_ones(given: list[float]) -> None:
    values = np.array(given, np.float32)
    found = powers_of_two(values)
    mantissas, _ = np.frexp(found)
    assert np.isin(np.abs(mantissas), [0, 0.5]).all()
    assert (np.sign(found) == np.sign(values)).all()
    for factor in (0.5, 2):
        nearer = np.abs(found.astype(float) * factor - values) < np.abs(found.astype(float) - values)
        assert not nearer.any()


def test_powers_of_two_stay_finite_and_zero_stays_zero() -> None:
    extreme = np.array([np.finfo(np.float32).max, -np.finfo(np.float32).max, 0, -0.0, 1e-45], np.float32)
    found = powers_of_two(extreme)
    assert found.tolist() == [2.0**127, -(2.0**127), 0, 0, 0]


@given(numbers, st.integers(1, 60))
def test_levels_keep_signs_and_the_sum_of_magnitudes(given: list[float], count: int) -> None:
    values = np.array(given, np.float32)
    found = levels(values, count)
    assert len(np.unique(np.abs(found))) <= count
    assert np.abs(found).sum(dtype=np.float64) == pytest.approx(np.abs(values).sum(dtype=np.float64), rel=1e-5)
    if count >= len(values):
        assert found == pytest.approx(values)


def test_every_tensor_has_its_own_levels() -> None:
    update = Sparse(8, np.array([0, 1, 4, 5, 6]), np.array([1, -3, 10, 20, 60], np.float32))
    assert rounded(update, (4, 4), "ternary").values.tolist() == [2, -2, 30, 30, 30]
    assert rounded(update, (4, 4), "levels:2").values.tolist() == [1, -3, 15, 15, 60]
    assert rounded(update, (4, 4), "float32") is update
    assert rounded(Sparse(8, np.array([5]), np.array([3], np.float32)), (4, 4), "ternary").values.tolist() == [3]


@pytest.mark.parametrize("method", ["fedpse", "fedscr", "fedthin", "topk", "ef21"])
def test_methods_take_values_by_name(method: str) -> None:
    for values in ("float32", "pow2", "levels:4", "ternary"):
        assert make_method(method, {"values": values}).values == values  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="values"):
        make_method(method, {"values": "levels:0"})
