"""Find out whether a mask is structured, and how long the rows of its tensors are.

The wire knows the lengths of tensors, not their shapes. A row length divides its tensor's length. Where
columns differ in density, the positions modulo the row length are far from evenly spread. The distance from even
is measured in bits, less what chance alone would give. The row length with the largest distance is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from sparsona.compiled import compiled
from sparsona.message import IndexSet
from sparsona.wire.buffers import Bytes
from sparsona.wire.rans import Ints, entropy, log2_fixed

SMALLEST = 1024
"""Shorter tensors count as one column."""

_GLANCE, _LOOK = 4096, 16384
"""The numbers of positions that are sampled: to see whether there is structure, and to measure it."""

_FEWEST = 64


@lru_cache(maxsize=1024)
def _row_lengths(size: int) -> Ints:
    """Return the divisors of `size` that leave at least four rows, and rows of at least eight."""
    low = [d for d in range(1, int(size**0.5) + 1) if size % d == 0]
    return np.array(sorted({d for d in low + [size // d for d in low] if 8 <= d <= size // 4}), np.int64)


@compiled
def _columns(sample: IndexSet, first: int, length: int) -> Ints:
    """Count the sampled positions, which ascend from `first` on, in each column of rows of `length`."""
    counts = np.zeros(length, np.int64)
    column, last = 0, first
    for index in sample:
        column += index - last  # most steps need no division
        if column >= length:
            column %= length
        last = index
        counts[column] += 1
    return counts


@compiled
def _folded(counts: Ints, length: int) -> Ints:
    """Return the counts of the columns of shorter rows, of which each of the longer ones holds several."""
    out = np.zeros(length, np.int64)
    for start in range(0, len(counts), length):
        for column in range(length):
            out[column] += counts[start + column]
    return out


@compiled
def _unevenness(sample: IndexSet, first: int, lengths: Ints) -> Ints:
    """Return for every row length, ascending, the bits by which the columns' counts differ from even, less chance.

    Chance gives half a nat per column. A whole bit is subtracted, and five standard deviations, so that long
    rows have to earn their columns.
    """
    out = np.zeros(len(lengths), np.int64)
    total = len(sample)
    known = [np.zeros(0, np.int64) for _ in lengths]
    for i in range(len(lengths) - 1, -1, -1):
        length = lengths[i]
        if length > total:
            continue
        for longer in range(i + 1, len(lengths)):
            if len(known[longer]) and lengths[longer] % length == 0:
                known[i] = _folded(known[longer], length)
                break
        if not len(known[i]):
            known[i] = _columns(sample, first, length)
        spread = 5
        while spread * spread < 13 * length:  # five standard deviations of half a chi-square, in bits
            spread += 1
        out[i] = ((total * log2_fixed(length) - entropy(known[i])) >> 12) - length - spread
    return out


@compiled
def _neighbours(mask: Bytes, sample: IndexSet, end: int) -> int:
    """Count the positions of the sample that are followed by another one."""
    count = 0
    for index in sample:
        if index + 1 < end:
            count += mask[index + 1]
    return count


def _clustered(mask: Bytes, sample: IndexSet, end: int, density: float) -> bool:
    chance = len(sample) * density
    return _neighbours(mask, sample, end) > 1.02 * chance + 5 * math.sqrt(chance * (1 - density)) + 1


def survey(mask: Bytes, indices: IndexSet, tensors: Sequence[int], counts: Sequence[int]) -> tuple[list[int], bool]:
    """Return the row lengths of `tensors` (1 where none is visible), and whether the mask is structured at all.

    `counts` has the number of positions in each tensor.
    """
    widths, structured, first, stop = [], False, 0, 0
    for size, count in zip(tensors, counts, strict=True):
        width, start, stop = 1, stop, stop + count
        if size >= SMALLEST and min(count, size - count) >= _FEWEST:
            lengths = _row_lengths(size)
            glance = np.ascontiguousarray(indices[start : stop : -(-count // _GLANCE)])
            uneven = len(lengths) > 0 and _unevenness(glance, first, lengths).max() > 0
            if uneven or _clustered(mask, glance, first + size, count / size):
                structured |= 20 * count >= len(indices)  # a share of all positions that is worth a closer look
                look = np.ascontiguousarray(indices[start : stop : -(-count // _LOOK)])
                bits = _unevenness(look, first, lengths)
                if len(bits) and bits.max() > 0:
                    width = int(lengths[bits.argmax()])
        widths.append(width)
        first += size
    return widths, structured
