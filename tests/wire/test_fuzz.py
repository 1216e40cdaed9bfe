"""Hostile frames: a WireError or a message, nothing else. An attacker can compute a checksum: half are sealed anew."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from wire_cases import LAYOUT, Case, cases, same, seal

from sparsona.errors import WireError
from sparsona.message import Positions, Sparse
from sparsona.wire import Limit, Reference, decode, encode

LIMIT = Limit(elements=20_000, parts=16)
CHUNKS, EACH = 10, 10_000


def mutate(frame: bytes, other: bytes, chance: random.Random) -> bytes:
    """One to four changes: flipped bits, other bytes, too many or too few, huge numbers, another frame's bytes."""
    out = bytearray(frame)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        # most of what can go wrong stands near the start
        at = chance.randrange(len(out)) if chance.random() < 0.5 else chance.randrange(min(len(out), 40))
        match chance.randrange(8):
            case 0 | 1:
                out[at] ^= 1 << chance.randrange(8)
            case 2:
                out[at] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
            case 3:
                del out[at : at + chance.randrange(1, 9)]
            case 4:
                out[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 5:
                out[at : at + 1] = b"\xff" * chance.randrange(1, 10) + b"\x01"
            case 6:
                out[at : at + chance.randrange(30)] = other[at : at + chance.randrange(30)]
            case _:
                del out[at:]
        if not out:
            break
    return bytes(out)


def lookup(case: Case, chance: random.Random) -> Callable[[bytes], Reference | None]:
    """Most receivers hold the reference; some hold none, and one holds other parts under the fingerprint asked for."""
    held = case.reference
    kind = chance.choice(("held", "held", "held", "none", "other", "lying"))
    if held is None or kind == "none":
        return lambda asked: None
    if kind == "other":
        return lambda asked: Reference.of(dict.fromkeys(held.parts, 1))
    if kind == "lying":
        parts = {name: part[::-1].copy() if isinstance(part, np.ndarray) else part for name, part in held.parts.items()}
        return lambda asked: Reference(parts, asked)
    return lambda asked: held if asked == held.fingerprint else None


def random_frame(chance: random.Random) -> bytes:
    """Noise behind a right start and one part of some kind."""
    kind = bytes([chance.choice((0, 1, 2, *range(8, 15), 16, 17, 18, 19, 20, chance.randrange(256)))])
    size = (
        bytes([chance.randrange(128)])
        if chance.random() < 0.5
        else bytes([chance.randrange(128, 256), chance.randrange(128)])
    )
    start = b"\xb7S\x04\0\0\0\x02" if chance.random() < 0.9 else chance.randbytes(7)
    return start + kind + b"\x01x" + size + chance.randbytes(chance.choice((0, 3, 10, 40, 300))) + bytes(4)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_mutated_and_random_frames(chunk: int) -> None:
    chance = random.Random(chunk)
    known: list[tuple[Case, bytes]] = [(case, case.frame.data) for case in cases()]
    short = [pair for pair in known if len(pair[1]) < 1500]
    intact = {frame for _, frame in known}
    decoded = several_lines = 0
    for i in range(EACH):
        case, frame = chance.choice(short)
        hostile = random_frame(chance) if i % 5 == 4 else mutate(frame, chance.choice(short)[1], chance)
        sealed = i % 2 == 0 and len(hostile) >= 4
        if sealed:
            hostile = seal(hostile)
        layout = chance.choice((case.layout, case.layout, LAYOUT, None))
        try:
            message = decode(hostile, LIMIT, layout, references=lookup(case, chance))
        except WireError as error:
            several_lines += "\n" in str(error)
            continue
        decoded += 1
        assert sealed or not hostile or hostile in intact
        assert all(part is not None for part in message.parts.values())
        for part in message.parts.values():
            if isinstance(part, Positions | Sparse):
                Positions(part.size, part.indices)  # refuses what is not sorted, distinct and within the size
        if decoded % 8 == 0:  # what came out is a message like any other
            assert same(decode(encode(message, layout).data, LIMIT, layout), message)
    assert several_lines == 0
    assert decoded > EACH // 100
