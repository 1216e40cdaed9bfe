"""Powers of two take their sign and their exponent's entropy, alone and added to what the receiver has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_cases import LIMIT, bell, powers, same, seal

from sparsona.errors import WireError
from sparsona.message import Message, Sparse
from sparsona.ops.sparse import powers_of_two
from sparsona.wire import Limit, Reference, decode, encode


def entropy_bytes(values: npt.NDArray[np.float32]) -> float:
    """The empirical entropy of the exponents, and a bit a sign."""
    _, counts = np.unique(np.frexp(values)[1], return_counts=True)
    shares = counts / counts.sum()
    return len(values) * (1 - float((shares * np.log2(shares)).sum())) / 8


@pytest.mark.parametrize("count", [300, 3000, 30_000])
def test_powers_of_two_take_their_entropy(count: int) -> None:
    values = powers(count, 3)
    frame = encode(Message(v=values))
    assert frame.ledger.values <= 1.01 * entropy_bytes(values) + 40
    assert same(decode(frame.data, LIMIT), Message(v=values))


def test_rounded_values_of_an_update_are_a_seventh_of_its_floats() -> None:
    indices = np.flatnonzero(np.arange(20_000) % 5 == 0)
    update = Sparse.take(bell(20_000, 4), indices)
    rounded = Sparse(20_000, indices, powers_of_two(update.values))
    assert encode(Message(u=update)).ledger.values > 7 * encode(Message(u=rounded)).ledger.values


def test_what_is_added_is_told_alone() -> None:
    held = np.cumsum(powers(10 * 1000, 5).reshape(10, 1000), axis=0, dtype=np.float32)[-1]
    moved = held.copy()
    moved[::10] += powers(100, 6)
    frame = encode(Message(v=moved), reference=Reference.of({"v": held}))
    assert frame.ledger.values < 100
    assert frame.ledger.positions < 100
    assert frame.ledger.against == frame.ledger.values + frame.ledger.positions + 2
    read = decode(frame.data, LIMIT, references=lambda _: Reference.of({"v": held}))
    assert same(read, Message(v=moved))


patterns = st.lists(
    st.sampled_from([0x3F800000, 0xBF800000, 0x00000000, 0x80000000, 0x7F800000, 0x33800000, 0xB3000000]), max_size=300
)


@given(patterns)
def test_any_numbers_without_mantissas_survive(bits: list[int]) -> None:
    message = Message(v=np.array(bits, np.uint32).view(np.float32))
    assert same(decode(encode(message).data, LIMIT), message)


@given(st.lists(st.floats(width=32), min_size=64, max_size=200), st.integers(0, 2**32 - 1))
def test_any_numbers_survive_against_any_others(numbers: list[float], seed: int) -> None:
    held = np.array(numbers, np.float32)
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore", invalid="ignore"):
        moved = held + np.where(rng.random(len(held)) < 0.2, powers(len(held), seed % 1000), np.float32(0))
    reference = Reference.of({"v": held})
    frame = encode(Message(v=moved), reference=reference)
    assert same(decode(frame.data, LIMIT, references=lambda _: reference), Message(v=moved))


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_powers_are_refused_or_read_as_some_numbers(place: int, byte: int) -> None:
    data = bytearray(encode(Message(v=powers(200, 7))).data)
    data[8 + place % (len(data) - 12)] = byte
    try:
        read = decode(seal(bytes(data)), Limit(elements=500))
    except WireError:
        return
    assert all(len(part) <= 500 for part in read.parts.values() if isinstance(part, np.ndarray))
