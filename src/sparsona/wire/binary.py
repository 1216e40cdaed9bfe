"""Kernels of an adaptive binary range coder: yes or no, each under a probability learnt on the way.

Writing and reading are one function with a switch, so that a model that is written once does both and cannot
disagree with itself. It is compiled twice, once for each position of the switch. Probabilities are integers out of
2**16, the interval has 40 bits: there are only integers.
"""

import numpy as np

from sparsona.compiled import compiled, i64, u64
from sparsona.wire.buffers import Bytes
from sparsona.wire.rans import Ints

FRESH = 32768 << 8  # a context that has seen nothing: probability one half (times 256), seen 0 times
SPAN = (1 << 40) - 1  # the interval at the start
_TOP, _LOW = 1 << 40, 1 << 32
_PACE = np.array([655360 // (10 * i + 16) for i in range(256)], np.int64)
"""The step of a probability whose context was seen i times, out of 2**16."""


@compiled
def begin(buffer: Bytes, reading: bool) -> tuple[int, int]:
    """Return the state and the place in the buffer at the start."""
    state = i64(0)
    if reading:
        for k in range(5):
            state = state << 8 | (i64(buffer[k]) if k < len(buffer) else 0)
    return state, i64(5 if reading else 0)


@compiled
def decide(
    bit: int, contexts: Ints, context: int, state: int, span: int, at: int, buffer: Bytes, reading: bool
) -> tuple[int, int, int, int]:
    """Write or read one bit and let the context learn from it; return the bit, the state, the span and the place.

    Writing takes at most two bytes, for which there must be room. Past the end of the data there are zeros.
    """
    known = contexts[u64(context)]
    p, seen = known >> 8, known & 255
    share = (span >> 16) * p
    if reading:  # without a branch: the processor cannot predict the bit
        bit = i64(state < share)
        span = share if bit else span - share
        state -= 0 if bit else share
    elif bit:
        span = share
    else:
        span -= share
        state += share
        if state >= _TOP:
            state -= _TOP
            _carry(buffer, at)
    while span < _LOW:
        if reading:
            state = state << 8 | (i64(buffer[u64(at)]) if at < len(buffer) else 0)
        else:
            buffer[u64(at)] = state >> 32
            state = (state & (_LOW - 1)) << 8
        at += 1
        span <<= 8
    p += (bit * 65536 - p) * _PACE[u64(seen)] >> 16
    contexts[u64(context)] = min(max(p, 32), 65504) << 8 | min(seen + 1, 255)
    return bit, state, span, at


@compiled
def _carry(buffer: Bytes, at: int) -> None:
    """Add one to the number in the first `at` bytes."""
    back = at - 1
    while buffer[back] == 255:
        buffer[back] = 0
        back -= 1
    buffer[back] += 1


@compiled
def finish(state: int, span: int, at: int, buffer: Bytes) -> int:
    """Write the number of the last interval with the most trailing zeros; return the bytes that are not such zeros.

    There must be room for five bytes.
    """
    keep = 40
    while keep > 0 and ((state + span - 1) >> keep) << keep < state:
        keep -= 1
    value = ((state + span - 1) >> keep) << keep
    if value >= _TOP:
        value -= _TOP
        _carry(buffer, at)
    for shift in (32, 24, 16, 8, 0):
        buffer[at] = (value >> shift) & 255
        at += 1
    while at > 0 and buffer[at - 1] == 0:
        at -= 1
    return at
