"""Kernels that code a mask bit by bit, each under a probability learnt from its neighbourhood.

The places where a trained network changes most are far from random: a unit that was not active changes none
of its weights, a weight matrix changes in the columns of the inputs that were, and units that learn alike change
in like places. So a bit's probability depends on how dense the mask was lately, on how dense its column was in
the rows above, and on the bit in that one of the last 64 rows which has been most alike so far. Blocks of 32
zeros cost one decision, which also makes it fast.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i64
from sparsona.wire.binary import FRESH, SPAN, begin, decide, finish
from sparsona.wire.buffers import Bytes
from sparsona.wire.rans import Ints

Words = npt.NDArray[np.uint32]

_BLOCK = 32
_ROWS = 64
"""How many rows are remembered."""

_ONE = 1 << 12
"""Densities are out of 2**12."""

_LEVEL = np.array([min(15, max(0, ((d + 16) ** 2).bit_length() - 9)) for d in range(_ONE + 1)], np.int64)
"""A density in 16 steps of half an octave."""


@compiled
def _ones(word: int) -> int:
    """How many of 32 bits are set."""
    word -= (word >> 1) & 0x55555555
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    return ((word + (word >> 4) & 0x0F0F0F0F) * 0x01010101 & 0xFFFFFFFF) >> 24


@compiled
def _most_alike(rows: Words, scores: Ints, word: int) -> int:
    """The row that differs least, of late: `rows` hold their bits where `word` holds the present row's."""
    for i in range(_ROWS):
        scores[i] += (_ones(i64(rows[i]) ^ word) << 4) - (scores[i] >> 2)
    best, least = 0, scores[0]
    for i in range(1, _ROWS):
        if scores[i] < least:
            best, least = i, scores[i]
    return best


@compiled
def _run(mask: Bytes, ends: Ints, widths: Ints, buffer: Bytes, room: int, reading: bool) -> int:
    """Write the mask into the buffer or read it from there; the bytes written, or -1 if `room` does not suffice."""
    flags, bits = np.full(4096, FRESH, np.int64), np.full(1024, FRESH, np.int64)
    state, at = begin(buffer, reading)
    span, i = i64(SPAN), i64(0)
    for tensor in range(len(ends)):
        # without rows to see, the tensor is one row, and all of it one column
        rowed = widths[tensor] > 1
        width = i64(widths[tensor]) if rowed else i64(ends[tensor]) - i
        step = 1 if rowed else 0
        blocks = (width + _BLOCK - 1) // _BLOCK
        kept = blocks if rowed else 1
        column_density = np.full(width if rowed else 1, _ONE // 10, np.int64)
        block_density = np.full(kept, _ONE // 2, np.int64)
        rows, row = np.zeros((kept, _ROWS), np.uint32), np.zeros(kept, np.uint32)
        scores = np.zeros(_ROWS, np.int64)
        density, last, history, oldest, alike = i64(_ONE // 10), i64(0), i64(0), i64(0), i64(0)
        while i < ends[tensor]:
            used = 0
            for block in range(blocks):
                if at >= room and not reading:
                    return -1
                size = min(_BLOCK, width - block * _BLOCK)
                here = block * step
                model = i64(rows[here, alike])
                some = i64(0)
                if not reading:
                    for k in range(i, i + size):
                        some |= i64(mask[k])
                context = (history & 7) << 8 | _LEVEL[block_density[here]] << 4 | _LEVEL[density]
                context |= i64(2048 if model else 0)
                some, state, span, at = decide(some, flags, context, state, span, at, buffer, reading)
                history = history << 1 | some
                block_density[here] += (some * _ONE - block_density[here]) >> 4
                word = i64(0)
                if some:
                    for k in range(size):
                        column = (block * _BLOCK + k) * step
                        bit = i64(1) if reading else i64(mask[i + k])
                        if word or k < size - 1:  # if all others were zero, the last is a one
                            context = _LEVEL[density] << 5 | _LEVEL[column_density[column]] << 1 | last
                            context |= ((model >> k) & 1) << 9
                            bit, state, span, at = decide(bit, bits, context, state, span, at, buffer, reading)
                        mask[i + k] = bit
                        word |= bit << k
                        density += (bit * _ONE - density) >> 3
                        column_density[column] += (bit * _ONE - column_density[column]) >> 4
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
    return 0 if reading else finish(state, span, at, buffer)


@compiled
def write(mask: Bytes, ends: Ints, widths: Ints, room: int) -> Bytes:
    """The code of `mask` (zeros and ones), whose tensors end at `ends` and have rows of `widths`, 1 if unknown.

    Comes back empty if it needs `room` bytes or more.
    """
    buffer = np.zeros(room + 128, np.uint8)  # a block takes 33 decisions of at most two bytes
    length = _run(mask, ends, widths, buffer, i64(room), False)
    return buffer[: length if length < room else 0]


@compiled
def read(data: Bytes, ends: Ints, widths: Ints) -> Bytes:
    """The mask that :func:`write` was given; any bytes give some mask."""
    mask = np.zeros(ends[-1], np.uint8)
    _run(mask, ends, widths, data.copy(), i64(0), True)  # a frame is read-only
    return mask
