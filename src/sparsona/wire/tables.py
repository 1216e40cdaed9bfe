"""Probabilities as bytes on a logarithmic scale, sixteen steps per octave: a table costs one byte per symbol.

A step is 4.4 %, so a quantised probability is at most 2.2 % off, which costs about 0.0001 bit per symbol.
"""

from __future__ import annotations

import numpy as np

from sparsona.compiled import compiled, i64
from sparsona.errors import WireError
from sparsona.wire import rans
from sparsona.wire.buffers import Bytes, Reader
from sparsona.wire.rans import Ints

STEPS = (65536, 68438, 71468, 74632, 77936, 81386, 84990, 88752,
          92682, 96785, 101070, 105545, 110218, 115098, 120194, 125515)  # fmt: skip
"""2**16 times the sixteenth roots of two; written out, since `pow` may differ between machines."""

SCALE: Ints = np.array([0] + [STEPS[(b - 1) % 16] << (b - 1) // 16 for b in range(1, 256)], np.int64)
"""The weight of a byte: 0 is 0, 1 is 2**16, and sixteen more double it."""


@compiled
def _nearest(target: int) -> int:
    """The byte from 1 to 255 whose weight is closest to `target`."""
    low, high = 1, 255
    while low < high:
        middle = (low + high + 1) >> 1
        if SCALE[middle] <= target:
            low = middle
        else:
            high = middle - 1
    if low < 255 and target - SCALE[low] > SCALE[low + 1] - target:
        low += 1
    return low


@compiled
def quantise(counts: Ints) -> Bytes:
    """The bytes that stand for rows of `counts`; a count of zero is byte zero, and no other is."""
    out = np.zeros(counts.shape, np.uint8)
    for row in range(counts.shape[0]):
        top = 1
        for i in range(counts.shape[1]):
            top = max(top, counts[row, i])
        for i in range(counts.shape[1]):
            if counts[row, i] > 0:
                # (scale * count) / top without overflow: counts stay below 2**31
                out[row, i] = _nearest((SCALE[255] * counts[row, i]) // top)
    return out


def frequencies(table: Bytes, bits: int) -> Ints:
    """The frequencies out of 2**bits that rows of bytes stand for."""
    return rans.frequencies(SCALE[table], bits)


def read_bytes(reader: Reader, count: int, what: str) -> Bytes:
    """A table of `count` bytes."""
    out, used, reached = _lengthen(reader.ahead(2 * count), count)
    reader.take(used, what)
    if reached < count:
        reader.take(1, what)
    if reached > count:
        raise WireError(f"the table of {what} runs over its end")
    return out


@compiled
def shortened(flat: Bytes) -> Bytes:
    """A table with its zeros as runs: a zero byte, then how many more zeros follow (at most 255).

    >>> shortened(np.array([7, 0, 0, 0, 9], np.uint8))
    array([7, 0, 2, 9], dtype=uint8)
    """
    out = np.empty(2 * len(flat), np.uint8)
    at, size = 0, 0
    while at < len(flat):
        out[size] = flat[at]
        at, size = at + 1, size + 1
        if out[size - 1] == 0:
            run = 0
            while at < len(flat) and run < 255 and flat[at] == 0:
                run, at = run + 1, at + 1
            out[size] = run
            size += 1
    return out[:size]


@compiled
def _lengthen(data: Bytes, count: int) -> tuple[Bytes, int, int]:
    """Return the table, the bytes it took, and its length: below `count` if the bytes ended too soon."""
    out = np.zeros(count, np.uint8)
    at, used = 0, 0
    while at < count and used < len(data):
        byte = data[used]
        if byte:
            out[at] = byte
            at, used = at + 1, used + 1
        elif used + 1 < len(data):
            at, used = at + 1 + i64(data[used + 1]), used + 2
        else:
            return out, used + 1, at
    return out, used, at


@compiled
def cost(counts: Ints) -> int:
    """About how many bytes :func:`shortened` takes for a table of these counts."""
    present, changes = 0, 0
    for i in range(len(counts)):
        present += counts[i] > 0
        changes += i > 0 and (counts[i] > 0) != (counts[i - 1] > 0)
    return present + 2 * (changes // 2 + 1)
