"""Whatever is sent arrives, bit for bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_cases import same
from wire_strategies import anything, index_sets, tensor_sizes, vectors

from sparsona.message import Levels, Message, Part, Positions, Sparse, Stamp, Ternary
from sparsona.wire import DecodeCache, EncodeCache, Limit, Tensors, decode, encode


def check(message: Message, layout: Tensors | None = None) -> None:
    frame = encode(message, layout)
    assert frame.ledger.total == len(frame.data)
    assert same(decode(frame.data, Limit(elements=100_000), layout), message)
    assert encode(message, layout, EncodeCache()) == frame
    plain, seen = encode(message, layout, packing="plain"), DecodeCache()
    assert plain.ledger.total == len(plain.data)
    for _ in range(2):
        assert same(decode(plain.data, Limit(elements=100_000), layout, seen), message)


@settings(max_examples=400, deadline=None)
@given(part=anything())
def test_any_part(part: Part) -> None:
    check(Message(part=part))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), layout=tensor_sizes())
def test_with_a_layout(data: st.DataObject, layout: Tensors) -> None:
    size = sum(layout)
    indices = data.draw(index_sets(size))
    check(Message(p=Positions(size, indices), s=Sparse(size, indices, data.draw(vectors(len(indices))))), layout)
    signs = np.arange(len(indices)) % 3 == 0
    check(Message(t=Ternary(layout, indices, signs, data.draw(vectors(len(layout))))), layout)
    check(Message(g=Levels(layout, np.repeat(data.draw(vectors(size // 7 + 1)), 7)[:size])), layout)


@settings(max_examples=100, deadline=None)
@given(
    parts=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=60), anything(), min_size=1, max_size=5),
    stamp=st.builds(
        Stamp,
        st.integers(0, 2**40),
        st.integers(0, 300),
        st.none() | st.tuples(st.integers(0, 2**40), st.integers(0, 300)),
    ),
)
def test_whole_messages(parts: dict[str, Part], stamp: Stamp) -> None:
    check(Message(**parts).stamped(stamp))


@settings(max_examples=200, deadline=None)
@given(values=vectors())
def test_vectors(values: npt.NDArray[np.float32]) -> None:
    check(Message(v=values))


@pytest.mark.parametrize("size", [65_537, 200_000, 1_663_370])
@pytest.mark.parametrize("density", [0.5, 0.1, 0.01])
def test_long_vectors(size: int, density: float) -> None:
    rng = np.random.default_rng(size)
    indices = np.flatnonzero(rng.random(size) < density)
    values = rng.normal(0, 1e-3, len(indices)).astype(np.float32)
    layout = (size // 2, 10, size - 10 - size // 2)
    part = Sparse(size, indices, values)
    frame = encode(Message(u=part), layout)
    assert same(decode(frame.data, Limit(size), layout), Message(u=part))


def test_a_message_without_parts_is_a_frame() -> None:
    stamp = Stamp(7, 1, (6, 0))
    frame = encode(Message().stamped(stamp))
    assert len(frame.data) == frame.ledger.total == 12
    back = decode(frame.data, Limit(0))
    assert (len(back), back.stamp) == (0, stamp)
