"""Packed vectors, sums of sparse vectors, cosines and buffers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Message, Sparse
from sparsona.method import Arrival
from sparsona.ops.buffers import buffers_of, with_buffers, with_mean_buffers
from sparsona.ops.packed import Packed
from sparsona.ops.similarity import cosine
from sparsona.ops.sparse import add

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


def test_nothing_packed_is_nothing() -> None:
    assert len(Packed.nothing(9).sparse().indices) == 0


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


def test_buffers_travel_whole_and_are_averaged() -> None:
    layout = Layout.of(nn.BatchNorm1d(1))
    one, other = np.array([0, 0, 1, 2], np.float32), np.array([9, 9, 5, 6], np.float32)
    assert buffers_of(one, Layout.of(nn.Linear(1, 1))) == {}
    down = Message(**buffers_of(other, layout))
    assert with_buffers(one, down, layout).tolist() == [0, 0, 5, 6]
    assert with_buffers(one, Message(), layout).tolist() == one.tolist()
    arrivals = [
        Arrival(c, Message(examples=n, **buffers_of(v, layout)), 0) for c, n, v in (("a", 1, one), ("b", 3, other))
    ]
    assert with_mean_buffers(one, arrivals, layout).tolist() == [0, 0, 4, 5]
    with pytest.raises(WireError):
        with_buffers(one, Message(buffers=np.zeros(3, np.float32)), layout)
