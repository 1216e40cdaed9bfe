"""Kernels that code the signs of floats.

The signs of weights are noise. Those of an update are not: the gradient of a unit's weights is its error times its
inputs, and inputs behind a ReLU have one sign, so a whole row may go up or down together. Each sign is coded under
a probability learnt for the pattern of the signs before it. Zeros have a probability of their own and leave the
pattern alone. A negative zero costs many bits, and survives.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparsona.compiled import compiled, i64
from sparsona.wire.binary import FRESH, SPAN, begin, decide, finish
from sparsona.wire.buffers import Bytes
from sparsona.wire.fields import Patterns
from sparsona.wire.rans import entropy


@compiled
def depth(count: int) -> int:
    """Return the number of signs in a pattern: long vectors can afford more."""
    return 8 if count >= 32768 else 6


@compiled
def _estimate(patterns: Patterns) -> int:
    """Estimate the bits that the signs take."""
    size = 1 << depth(len(patterns))
    counts = np.zeros((size + 1, 2), np.int64)
    history = 0
    for pattern in patterns:
        sign = i64(pattern >> 31)
        if (pattern >> 23) & 255:
            counts[history, sign] += 1
            history = (history << 1 | sign) & (size - 1)
        else:
            counts[size, sign] += 1
    total = 0
    for i in range(size + 1):
        total += entropy(counts[i])
    return total >> 12


def _runner(reading: bool) -> Callable[[Bytes, Bytes, Bytes, int], int]:
    """Return the model of signs, compiled for writing or for reading."""

    @compiled
    def run(signs: Bytes, zeros: Bytes, buffer: Bytes, room: int) -> int:
        """Write the signs into the buffer or read them from it; return the bytes written, -1 beyond `room`."""
        size = 1 << depth(len(signs))
        contexts = np.empty(size + 1, np.int64)
        for i in range(size + 1):
            contexts[i] = FRESH
        state, at = begin(buffer, reading)
        span, history = i64(SPAN), i64(0)
        for i in range(len(signs)):
            if at >= room and not reading:
                return -1
            context = i64(size) if zeros[i] else history
            bit, state, span, at = decide(i64(signs[i]), contexts, context, state, span, at, buffer, reading)
            if not zeros[i]:
                history = (history << 1 | bit) & (size - 1)
            signs[i] = bit
        return 0 if reading else finish(state, span, at, buffer)

    return run


_write, _read = _runner(False), _runner(True)


def write(patterns: Patterns) -> Bytes:
    """Return the code of the signs of `patterns`; empty if they are like noise."""
    count = len(patterns)
    if 32 * _estimate(patterns) > 31 * count:
        return np.zeros(0, np.uint8)
    signs, zeros = (patterns >> np.uint32(31)).astype(np.uint8), (patterns & np.uint32(0x7F800000) == 0).view(np.uint8)
    buffer = np.zeros(count // 8 + 16, np.uint8)
    length = _write(signs, zeros, buffer, count // 8)
    return buffer[: max(0, length)]


def read(data: Bytes, zeros: Bytes) -> Bytes:
    """Return a sign for each place; `zeros` says where the exponent is zero. Any bytes give some signs."""
    signs = np.zeros(len(zeros), np.uint8)
    _read(signs, zeros, data.copy(), 0)  # a frame is read-only
    return signs
