"""Top-k supports: the counts, the order of equals, zeros, and the contraction that error feedback rests on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparsona.layout import Layout
from sparsona.models.two_convs import convnet2
from sparsona.ops.topk import kept, top_supports, topk_support

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
