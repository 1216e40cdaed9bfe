"""Hostile differences, read and written with every access to memory checked, in plain Python and compiled."""

from __future__ import annotations

import random

import numpy as np
import pytest
from checked import Guard, OutOfBounds, checked, load64, store64
from wire_cases import bell, dice
from wire_strategies import EXTREME

from sparsona.errors import WireError
from sparsona.message import Vector
from sparsona.wire import differences, lanes, symbols
from sparsona.wire.buffers import Reader, varint

SIZES = (64, 65, 79, 80, 81, 127, 144)
LONG = (1023, 1024, 1040, 1100)
EACH = 100
WRITING = {
    differences: ("_survey", "_contexts", "_write"),
    lanes: ("tables", "entries"),
    symbols: ("shortened",),
}


def read(body: bytes, reference: Vector) -> bytes | None:
    """What comes out, None if it is refused."""
    try:
        return differences.decode(Reader(body, len(reference)), reference).tobytes()
    except WireError:
        return None


def read_checked(body: bytes, reference: Vector) -> bytes | None:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((differences, "_decode"), (lanes, "readable"), (symbols, "_lengthen")):
            patch.setattr(module, name, checked(getattr(module, name)))
        return read(body, reference)


def alike(body: bytes, reference: Vector) -> bool:
    """Whether it is a vector; in both ways, the checked one first."""
    found = read_checked(body, reference)
    assert read(body, reference) == found
    return found is not None


def crafted(size: int, chance: random.Random) -> bytes:
    """Tables that are codes, of all shapes; lanes of any lengths, which need not fit."""
    log = chance.randrange(4) if size >= 1024 else 0
    table = np.zeros(((1 << log) + 1, differences.SYMBOLS), np.uint8)
    for row in table:
        counts = np.zeros(differences.SYMBOLS, np.int64)
        for _ in range(chance.choice((0, 1, 2, 12, 280))):
            counts[chance.randrange(len(counts))] += 2 ** chance.randrange(20)
        if chance.random() < 0.2:  # the longest codes that zeros can be
            counts[:] = 1
        row[:] = lanes.lengths(counts)
        if chance.random() < 0.1:  # rarely one that is none
            row[chance.randrange(len(row))] = chance.choice((1, 9, 10, 11, 12, 15, 16, 64, 255))
    cuts = bytes(sorted(chance.choice((0, 1, 8, 31, 32, 255)) for _ in range((1 << log) - 1)))
    short = chance.random() < 0.5  # else there is enough to read for all numbers
    sizes = [chance.choice((0, 0, 1, 7, 8, size // 2)) if short else size for _ in range(differences.LANES + 1)]
    noise = chance.choice((bytes(sum(sizes)), b"\xff" * sum(sizes), chance.randbytes(sum(sizes))))
    start = bytes([log]) + cuts + symbols.shortened(table.reshape(-1)).tobytes()
    return start + b"".join(map(varint, sizes)) + noise + chance.randbytes(4 * (size % 16))


def mutated(body: bytes, chance: random.Random) -> bytes:
    """One to three bytes, more often near the start, or cut off, or longer."""
    out = bytearray(body)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(out) if chance.random() < 0.5 else min(len(out), 80))
        match chance.randrange(5):
            case 0:
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                out[at] = chance.choice((0, 1, 9, 10, 11, 12, 15, 127, 128, 255))
            case 2:
                out[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 3:
                out[at : at + 1] = b"\xff" * chance.randrange(1, 10) + b"\x01"
            case _:
                del out[at : at + chance.choice((1, 2, 8, 64))]
    return bytes(out)


def pair(size: int, step: int, seed: int) -> tuple[Vector, Vector]:
    """A vector and its reference, with odd patterns in both."""
    old = bell(size, seed)
    new = old + bell(size, seed + 1) * np.float32(2.0**step)
    odd = np.resize(np.array(EXTREME, np.uint32), size).view(np.float32)
    return np.where(dice(size, seed + 2) % 50 == 0, odd, new), np.where(dice(size, seed + 3) % 50 == 0, odd[::-1], old)


@pytest.mark.parametrize("chunk", range(4))
def test_mutated_differences_stay_within_bounds(chunk: int) -> None:
    chance, taken = random.Random(chunk), 0
    for number in range(EACH):
        size = chance.choice(SIZES if number % 25 else LONG)
        new, old = pair(size, -9, number % 7)
        body = differences.encode(new, old)
        assert body is not None
        taken += alike(mutated(body, chance), old if number % 5 else np.resize(old, chance.choice(SIZES)))
    assert 0 < taken < EACH


@pytest.mark.parametrize("chunk", range(4))
def test_crafted_differences_stay_within_bounds(chunk: int) -> None:
    chance = random.Random(100 + chunk)
    for number in range(EACH):
        size = chance.choice(SIZES if number % 25 else LONG)
        alike(crafted(size, chance), pair(size, -9, number % 7)[1])


@pytest.mark.parametrize("lane", range(differences.LANES + 1))
def test_a_lane_is_read_no_further_than_its_slack(lane: int) -> None:
    """All lanes are empty. The codes of one take 8 bits and the most that can follow, those of the others none."""
    counts = np.zeros((2, differences.SYMBOLS), np.int64)
    counts[0, 0], counts[1, differences.FAR :] = 1, 1
    none, far = map(lanes.lengths, counts)
    table = np.concatenate([none, far if lane else none, none if lane else far])
    old = np.where(np.arange(4096) % differences.LANES == lane - 1, np.float32(2.0**-100), np.float32(2.0**100))
    body = bytes([1, 16]) + symbols.shortened(table).tobytes() + bytes(differences.LANES + 1)
    assert not alike(body, old)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63])
def test_short_references_are_refused(size: int) -> None:
    body = differences.encode(*pair(64, -9, 1))
    assert body is not None
    assert not alike(body, bell(size, 1))


@pytest.mark.parametrize("size", [64, 79, 80, 1023, 1024, 1040])
@pytest.mark.parametrize("step", [-20, -9, 0])
def test_writing_stays_within_bounds_and_comes_back(size: int, step: int) -> None:
    new, old = pair(size, step, 3)
    with pytest.MonkeyPatch.context() as patch:
        for module, names in WRITING.items():
            for name in names:
                patch.setattr(module, name, checked(getattr(module, name)))
        body = differences.encode(new, old)
    assert body == differences.encode(new, old)
    assert body is None or read_checked(body, old) == new.tobytes()


def test_vectors_of_other_lengths_are_not_coded() -> None:
    assert differences.encode(bell(200, 1), bell(100, 1)) is None


def test_the_check_sees_accesses_beyond_an_end() -> None:
    """A table with too long a code wrote out of bounds once."""
    data = np.zeros(200, np.uint8).view(Guard)
    with pytest.raises(OutOfBounds):
        load64(data, 193 - (lanes.SLACK - 86))
    with pytest.raises(OutOfBounds):
        store64(data, 193, 0)
    for place in (-1, 200, np.uint64(200), np.array([3, -1])):
        with pytest.raises(OutOfBounds):
            data[place]
    with pytest.raises(OutOfBounds):
        checked(lanes.entries)(np.array([[1, 12]], np.uint8), np.zeros(2, np.uint8))
