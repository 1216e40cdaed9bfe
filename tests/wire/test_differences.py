"""Numbers against a reference by themselves: any bits come back, and bytes that make no sense are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_cases import bell, dice
from wire_strategies import EXTREME

from sparsona.errors import WireError
from sparsona.message import Vector
from sparsona.wire import differences
from sparsona.wire.buffers import Reader
from sparsona.wire.lanes import LIMIT, ONLY, entries, lengths, readable

SIZES = [64, 65, 79, 80, 1023, 1024, 1025, 1039, 1040, 5000]
OLD = bell(1040, 1)
NEW = OLD + bell(1040, 2) * np.float32(2**-9)


def back(values: Vector, reference: Vector) -> Vector | None:
    """The values as they come back; None where differences do not pay."""
    body = differences.encode(values, reference)
    if body is None:
        return None
    reader = Reader(body, len(values))
    found = differences.decode(reader, reference)
    assert reader.remaining == 0
    return found


@settings(max_examples=200, deadline=None)
@given(size=st.sampled_from(SIZES), seed=st.integers(0, 2**20), odd=st.integers(0, 40), step=st.integers(-30, 2))
def test_any_bits_come_back(size: int, seed: int, odd: int, step: int) -> None:
    """NaN payloads, infinities, denormals and zeros of both signs among honest steps, on both sides."""
    rng = np.random.default_rng(seed)
    old = bell(size, seed)
    new = old + bell(size, seed + 1) * np.float32(2.0**step)
    for vector in (old, new):
        places = rng.integers(0, size, odd)
        vector[places] = rng.choice(np.array(EXTREME, np.uint32), odd).view(np.float32)
    found = back(new, old)
    assert 8 * odd >= size or step > -4 or found is not None  # more odd patterns may not pay
    assert found is None or found.tobytes() == new.tobytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("extreme", EXTREME)
def test_one_pattern_against_its_neighbours(size: int, extreme: int) -> None:
    """Neighbours of zero, of infinity and of the largest number, whose magnitude must not run over into the sign."""
    old = np.full(size, extreme, np.uint32)
    new = old + (dice(size, 3) >> 31)
    found = back(new.view(np.float32), old.view(np.float32))
    assert found is not None
    assert found.tobytes() == new.tobytes()


def test_what_does_not_pay_is_not_coded() -> None:
    assert differences.encode(OLD[:63], NEW[:63]) is None
    assert differences.encode(dice(1000, 4).view(np.float32), OLD[:1000]) is None


@given(counts=st.lists(st.integers(0, 2**30) | st.integers(0, 3), min_size=1, max_size=280))
def test_every_table_uses_up_all_bits(counts: list[int]) -> None:
    """Codes stand for their symbols, and no reader can come upon bits that no code begins with."""
    table = lengths(np.array(counts, np.int64))[None]
    assert ((table[0] > 0) == (np.array(counts) > 0)).all()
    nothing = np.zeros(len(counts), np.uint8)
    codes, fine = readable(table, nothing)
    assert fine
    for symbol in np.flatnonzero(table[0]):
        assert codes[0, entries(table, nothing)[0, symbol] & 0xFFFF] & 0xFFFF == symbol


def test_frequent_symbols_have_short_codes() -> None:
    counts = 2 ** np.arange(20)
    table = lengths(counts)
    assert table[19] == 1
    assert table.max() == LIMIT
    assert lengths(np.array([0, 7, 0])).tolist() == [0, ONLY, 0]


@pytest.mark.parametrize("table", [[1, 1, 1], [1, 2], [ONLY, 1], [ONLY + 1], [ONLY, ONLY], [LIMIT]])
def test_tables_that_are_no_codes_are_refused(table: list[int]) -> None:
    assert not readable(np.array([table], np.uint8), np.zeros(len(table), np.uint8))[1]


def test_every_changed_byte_is_refused_or_gives_a_vector() -> None:
    body = differences.encode(NEW, OLD)
    assert body is not None
    refused = 0
    for at in range(len(body)):
        for bits in (1, 0x80, 0xFF):
            hostile = bytearray(body)
            hostile[at] ^= bits
            try:
                assert len(differences.decode(Reader(bytes(hostile), 1040), OLD)) == 1040
            except WireError:
                refused += 1
    assert refused > 100  # bits that are written as they are fit whatever they are


@pytest.mark.parametrize("cut", [1, 7, 100, 1000])
def test_a_body_that_ends_too_soon_is_refused(cut: int) -> None:
    body = differences.encode(NEW, OLD)
    assert body is not None
    with pytest.raises(WireError, match="ends in"):
        differences.decode(Reader(body[:-cut], 1040), OLD)


def test_another_reference_is_noticed_or_gives_other_numbers() -> None:
    """The fingerprint of a frame sees to it that this never happens by accident."""
    body = differences.encode(NEW, OLD)
    assert body is not None
    with pytest.raises(WireError, match="do not fit"):
        differences.decode(Reader(body, 1040), OLD[::-1].copy())
