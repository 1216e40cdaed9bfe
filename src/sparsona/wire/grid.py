"""Kernels that code a mask bit by bit, each under a probability learnt from its neighbourhood.

The places where a trained network changes most are far from random. A unit that was not active changes none
of its weights; a weight matrix changes in the columns of the active inputs; units that learn similarly change
in similar places. So a bit's probability depends on the recent density of the mask, on the density of its column in
the rows above, and on the bit in the most similar of the last 64 rows. Blocks of 32 zeros cost one decision, which
also makes the coder fast.

The wire knows the lengths of tensors, not their shapes: :func:`survey` finds the rows. A row length divides its
tensor's length. Where columns differ in density, the positions modulo the row length are far from evenly spread. The
distance from even is measured in bits, less what chance alone would give, and the largest distance wins.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i32, i64, u32, u64
from sparsona.message import IndexSet
from sparsona.wire.binary import FRESH, SPAN, begin, decide, finish
from sparsona.wire.buffers import Bytes
from sparsona.wire.rans import Ints, entropy, log2_fixed

Words = npt.NDArray[np.uint32]
Scores = npt.NDArray[np.int32]

_BLOCK = 32
_ROWS = 64  # the number of rows that are remembered
_ONE = 1 << 12  # densities are out of 2**12
_LEVEL = np.array([min(15, max(0, ((d + 16) ** 2).bit_length() - 9)) for d in range(_ONE + 1)], np.uint8)
"""The level of a density, in 16 steps of half an octave."""


@compiled
def _most_alike(rows: Words, scores: Scores, word: int) -> int:
    """Return the row that has differed least lately: `rows` hold their bits where `word` holds the present row's."""
    for i in range(_ROWS):
        differ = rows[i] ^ u32(word)
        differ -= differ >> u32(1) & u32(0x55555555)
        differ = (differ & u32(0x33333333)) + (differ >> u32(2) & u32(0x33333333))
        ones = u32((differ + (differ >> u32(4)) & u32(0x0F0F0F0F)) * u32(0x01010101)) >> u32(24)
        scores[i] += i32(ones << u32(4)) - (scores[i] >> i32(2))
    least = scores[0]
    for i in range(1, _ROWS):
        least = min(least, scores[i])
    best = 0
    while scores[best] != least:
        best += 1
    return best


def _runner(reading: bool) -> Callable[[Bytes, IndexSet, Ints, Ints, Bytes, int], int]:
    """Return the model of a mask, compiled for writing or for reading."""

    @compiled
    def run(mask: Bytes, places: IndexSet, ends: Ints, widths: Ints, buffer: Bytes, room: int) -> int:
        """Write `mask` into the buffer and return the bytes written, or -1 if `room` does not suffice.

        Or read positions from the buffer into `places`, as many as fit, and return their number.
        """
        flags, bits = np.full(4096, FRESH, np.int64), np.full(1024, FRESH, np.int64)
        state, at = begin(buffer, reading)
        span, i, found = i64(SPAN), i64(0), i64(0)
        for tensor in range(len(ends)):
            # without visible rows the tensor is one row, and all of it one column
            rowed = widths[tensor] > 1
            width = i64(widths[tensor]) if rowed else i64(ends[tensor]) - i
            step = 1 if rowed else 0
            blocks = (width + _BLOCK - 1) // _BLOCK
            kept = blocks if rowed else 1
            column_density = np.full(width if rowed else 1, _ONE // 10, np.int16)
            block_density = np.full(kept, _ONE // 2, np.int64)
            rows, row = np.zeros((kept, _ROWS), np.uint32), np.zeros(kept, np.uint32)
            scores = np.zeros(_ROWS, np.int32)
            density, last, history, oldest, alike = i64(_ONE // 10), i64(0), i64(0), i64(0), i64(0)
            while i < ends[tensor]:
                used = 0
                for block in range(blocks):
                    if at >= room and not reading:
                        return -1
                    size = min(_BLOCK, width - block * _BLOCK)
                    here = u64(block * step)
                    model = i64(rows[here, u64(alike)])
                    some = i64(0)
                    if not reading:
                        for k in range(i, i + size):
                            some |= i64(mask[u64(k)])
                    context = (
                        (history & 7) << 8 | i64(_LEVEL[u64(block_density[here])]) << 4 | i64(_LEVEL[u64(density)])
                    )
                    context |= i64(2048 if model else 0)
                    some, state, span, at = decide(some, flags, context, state, span, at, buffer, reading)
                    history = history << 1 | some
                    block_density[here] += (some * _ONE - block_density[here]) >> 4
                    word = i64(0)
                    if some:
                        for k in range(size):
                            column = u64((block * _BLOCK + k) * step)
                            above = i64(column_density[column])
                            bit = i64(1) if reading else i64(mask[u64(i + k)])
                            if word or k < size - 1:  # if all others were zero, the last is a one
                                context = i64(_LEVEL[u64(density)]) << 5 | i64(_LEVEL[u64(above)]) << 1 | last
                                context |= ((model >> k) & 1) << 9
                                bit, state, span, at = decide(bit, bits, context, state, span, at, buffer, reading)
                            if reading:
                                places[u64(min(found, len(places) - 1))] = i + k
                                found += bit
                            word |= bit << k
                            density += (bit * _ONE - density) >> 3
                            column_density[column] = above + ((bit * _ONE - above) >> 4)
                            last = bit
                        used = 1
                        if rowed:
                            alike = _most_alike(rows[here], scores, word)
                    else:
                        density >>= 6
                        last = 0
                    row[here] = word
                    i += size
                if rowed and used:
                    oldest = (oldest + 1) % _ROWS
                    rows[:, oldest] = row
        return found if reading else finish(state, span, at, buffer)

    return run


_write, _read = _runner(False), _runner(True)


@compiled
def write(mask: Bytes, ends: Ints, widths: Ints, room: int) -> Bytes:
    """Return the code of `mask`, whose tensors have `ends` and rows of `widths` (1: unknown); empty beyond `room`."""
    buffer = np.zeros(room + 128, np.uint8)  # a block takes 33 decisions of at most two bytes
    length = _write(mask, np.zeros(0, np.int64), ends, widths, buffer, i64(room))
    return buffer[: length if length < room else 0]


@compiled
def read(data: Bytes, ends: Ints, widths: Ints, most: int) -> IndexSet:
    """Return the places of the ones of a written mask, at most `most` + 1. Any bytes give some."""
    places = np.empty(most + 1, np.int64)
    found = _read(np.zeros(0, np.uint8), places, ends, widths, data.copy(), i64(0))  # a frame is read-only
    return places[:found]


SMALLEST = 1024  # shorter tensors count as one column
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


def _clustered(mask: Bytes, sample: IndexSet, end: int, density: float) -> bool:
    """True if more positions of the sample are followed by another one than by chance."""
    chance = len(sample) * density
    neighbours = np.count_nonzero(mask[sample[: np.searchsorted(sample, end - 1)] + 1])
    return bool(neighbours > 1.02 * chance + 5 * math.sqrt(chance * (1 - density)) + 1)


def survey(mask: Bytes, indices: IndexSet, tensors: Sequence[int], counts: Sequence[int]) -> tuple[list[int], bool]:
    """Return the row lengths of `tensors` (1: none visible) with `counts` positions; and whether there is structure."""
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
