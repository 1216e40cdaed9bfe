"""A few hostile bytes may not take more memory than the limit allows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparsona.errors import WireError
from sparsona.wire import Limit, decode

SCRIPT = """
import re, sys
from pathlib import Path
from itertools import chain
import numpy as np
from wire_cases import LAYOUT, cases, seal
from sparsona.errors import WireError
from sparsona.message import Positions
from sparsona.wire import Limit, Reference, decode, encode
from sparsona.wire.buffers import varint

def peak():  # of this process alone: `ru_maxrss` begins with the peak of its parent
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def hostile(claim):
    start = b"\\xb7S\\x04\\0\\0\\0\\x02"
    n, half = varint(claim), varint(claim // 2)
    for kind in (*range(8, 15), 16, 17, 18, 19, 20):
        for numbers in (n, n + half, n + half + n, varint(2) + n, varint(3) + n + n, varint(2) + n + half + half):
            for way in (*range(6), 17, 36):
                for end in (bytes(60), b"\\xff" * 60, bytes(range(60))):
                    yield seal(start + bytes([kind]) + b"\\x01x" + numbers + bytes([way]) + end + bytes(4))

def full(claim):  # bodies as long as they may be, and longer
    start, noise = b"\\xb7S\\x04\\0\\0\\0\\x02", np.random.default_rng(0).bytes(5 * claim)
    n = varint(claim)
    for few in (claim // 2, claim // 23):
        for way in (0, 1, 17):
            yield seal(start + b"\\x11\\x01x" + n + varint(few) + bytes([way]) + noise + bytes(4))
        for grid in (4, 36):
            body = varint(1 if grid == 4 else claim) + varint(4 * claim) + noise
            yield seal(start + b"\\x11\\x01x" + n + varint(few) + bytes([grid]) + body + bytes(4))
    for length in (4 * claim, 5 * claim):
        yield seal(start + b"\\x14\\x01x" + varint(2) + n + b"\\0" + varint(length) + noise + bytes(4))

def against(noise):  # a few bytes that stand for a million numbers each, and as many as can be
    start = b"\\xb7S\\x04\\0\\0\\0\\x03" + bytes(8)
    table = b"\\0\\0\\x09\\x0b\\0\\xff\\0\\x0c\\x0b\\0\\xff\\0\\x16"  # ten bits follow, whatever the code
    lane = 2**18 * 10 // 8
    yield seal(start + b"\\x48\\x01x\\1" + table + b"\\0" + 4 * varint(lane) + noise[: 4 * lane] + bytes(4))
    yield seal(start + b"\\x48\\x01x\\1\\0" + bytes(60) + bytes(4))
    for way in (0, 1, 17, 2, 4):  # what is added, at half of the places
        yield seal(start + b"\\x48\\x01x\\2" + varint(2**19) + bytes([way]) + noise + bytes(4))
    for way in (0, 1, 17, 2, 4):
        many = varint(2**18) + varint(2**18) + bytes([way]) + noise
        yield seal(start + b"\\x51\\x01y\\1" + many + bytes(4))
    yield seal(start[:-9] + b"\\5" + bytes(8) + b"\\x48\\x01x\\0\\x51\\x01y\\0" + b"\\0" + bytes(4))

held = Reference({"x": np.zeros(2**20, np.float32), "y": Positions(2**20, np.arange(0, 2**20, 2))}, bytes(8))

for case in cases():
    decode(encode(case.message, case.layout).data, Limit(50_000), case.layout)
for frame in hostile(1000):  # all kernels are loaded
    try:
        decode(frame, Limit(5000))
    except WireError:
        pass
allowed = int(sys.argv[1])
frames = [*full(2**20), *against(np.random.default_rng(0).bytes(2**21))]  # these are the sender's
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before, refused, deep = peak(), 0, 0
for claim in (2**20 if allowed else 10**9, 2**31 - 1, 2**40, 2**63):
    for frame in chain(hostile(claim), frames if claim == 2**20 else ()):
        try:
            decode(frame, Limit(allowed), references=lambda _: held)
        except WireError as error:
            refused += 1
            deep += "follow" in str(error) or "announced" in str(error)
print(peak() - before, refused, deep)
"""


def grown(allowed: int) -> tuple[int, int, int]:
    """By how many bytes the process grew, how many frames were refused, how many only after all was decoded."""
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", SCRIPT, str(allowed)]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    more, refused, deep = map(int, run.stdout.split())
    return more, refused, deep


def test_a_frame_longer_than_can_be_needed_is_refused_unread() -> None:
    limit = Limit(10)
    with pytest.raises(WireError, match="at most"):
        decode(b"\xb7S\x04" + bytes(limit.bytes), limit)


def test_huge_claims_are_refused_before_they_take_memory() -> None:
    more, refused, deep = grown(0)
    assert more < 8 * 2**20
    assert refused > 1000
    assert deep == 0


def test_memory_is_bounded_by_the_limit() -> None:
    elements = 2**20 * 2
    more, refused, deep = grown(elements)
    assert more < 50 * elements
    assert refused > 1000
    assert deep > 10
