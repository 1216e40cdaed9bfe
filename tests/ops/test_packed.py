"""Packed vectors, sums of sparse vectors, cosines."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsona.message import Sparse
from sparsona.ops.packed import Packed, add, without
from sparsona.ops.pairwise import cosine

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
    assert vector.tolist() == [1, -2, 3], "the vector itself is not touched"
