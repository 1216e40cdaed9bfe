"""float32 vectors against a reference of the same length, bit for bit.

A number and its reference are compared as magnitudes: exponent and mantissa as one integer of 31 bits, in which
neighbouring floats are one apart, whatever their exponent. If the signs agree and the two are less than 2**23 apart,
the number is *near*. Its symbol is the direction and the bit length of the distance; the bits of the distance below
the top one are written as they are. Else the number is *far*. Its symbol is its exponent and whether the sign turned;
the mantissa is written as it is.

How far apart they are depends on two things that the receiver knows. Steps are alike among neighbours, and a step of
one size is a longer distance from a smaller number. So each number has a *size of step*: the exponent of its reference
plus the bit length of the distance. The fading mean of the steps before it, less the exponent of its own reference,
says what bit length to expect, and chooses the context. The mean lags four numbers behind: this costs 0.3 % and lets
four symbols be decoded at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparsona.compiled import KERNEL, compiled, i64, u64
from sparsona.errors import WireError
from sparsona.message import Vector
from sparsona.wire import rans, symbols, tables
from sparsona.wire.buffers import Reader, varint
from sparsona.wire.fields import Patterns
from sparsona.wire.rans import Contexts, Ints, Symbols, Words

BITS = 12
"""Frequencies are out of 2**12."""

REACH = 23
"""The longest distance of a near number, in bits."""

FAR = 2 * REACH + 1
"""The first symbol of far numbers; those of near ones are 0 (the same), and two for every bit length."""

SYMBOLS = FAR + 2 * 256

LAG = 4
"""How many numbers lie between a step and the first number that it helps to predict."""

EXPECTED = 96
"""Expected bit lengths in halves; what is above counts as the highest."""

MOST_CONTEXTS = 4
"""log2 of the most contexts."""

_FEW = 64
"""Shorter vectors are not worth a table."""

_FIRST = 12
"""The bit length that is expected of the first numbers."""


@compiled
def _bit_length(number: int) -> int:
    """Of a number below 2**24."""
    out = i64(0)
    for step in (16, 8, 4, 2, 1):
        if number >> step:
            number >>= step
            out += step
    return out + i64(number > 0)


@compiled
def _fade(mean: int, step: int) -> int:
    """The mean of the steps so far in sixteenths, of which the last counts a quarter; unchanged if `step` is -1."""
    return mean + ((((step << 4) - mean) >> 2) if step >= 0 else 0)


@compiled
def _expected(mean: int, exponent: int) -> int:
    """The bit length to expect of a distance from a number of this exponent, in halves."""
    return min(max((mean >> 3) - 2 * exponent, 0), EXPECTED - 1)


@compiled
def _step_near(length: int, exponent: int) -> int:
    """The size of the step to a near number. Two zeros say nothing."""
    if length:
        return exponent + length
    return max(exponent - 3, 0) if exponent else -1


@compiled
def split(patterns: Patterns, reference: Patterns) -> tuple[Symbols, Contexts, Ints, npt.NDArray[np.uint32], int]:
    """Symbols, expected bit lengths, how often each symbol occurs at each of these, and the plain bits (as words,
    lowest bits first; and how many bits).
    """
    n = len(patterns)
    found, expected = np.empty(n, np.uint16), np.empty(n, np.uint8)
    counts = np.zeros((EXPECTED, SYMBOLS), np.int64)
    words = np.empty((n * 23) // 32 + 2, np.uint32)
    held, filled, at = u64(0), i64(0), i64(0)
    steps = np.full(LAG, -1, np.int64)
    mean = _start(reference)
    for i in range(n):
        own, other = i64(patterns[i]), i64(reference[i])
        exponent = (other >> 23) & 255
        mean = _fade(mean, steps[u64(i & 3)])
        length_expected = _expected(mean, exponent)
        distance = (own & 0x7FFFFFFF) - (other & 0x7FFFFFFF)
        apart = abs(distance)
        if (own ^ other) >> 31 == 0 and apart < 1 << REACH:
            length = _bit_length(apart)
            symbol = 2 * length - i64(distance > 0)
            keep = max(length - 1, 0)
            rest = apart & ((1 << keep) - 1)
            steps[u64(i & 3)] = _step_near(length, exponent)
        else:
            to = (own >> 23) & 255
            symbol = FAR + 2 * to + ((own ^ other) >> 31)
            keep, rest = i64(23), own & 0x7FFFFF
            steps[u64(i & 3)] = max(to, exponent) + 24
        found[u64(i)] = symbol
        expected[u64(i)] = length_expected
        counts[u64(length_expected), u64(symbol)] += 1
        held |= u64(rest) << u64(filled)
        filled += keep
        if filled >= 32:
            words[u64(at)] = held & u64(0xFFFFFFFF)
            at += 1
            held >>= u64(32)
            filled -= 32
    words[u64(at)] = held & u64(0xFFFFFFFF)
    return found, expected, counts, words[: at + 1], at * 32 + filled


@compiled
def _start(reference: Patterns) -> int:
    return (((i64(reference[0]) >> 23) & 255) + _FIRST) << 4


@compiled
def _push(found: Symbols, expected: Contexts, context_of: Contexts, freq: Ints) -> Words:
    """The symbols as words: four states (low word first), then what the decoder wants in its order."""
    n = len(found)
    words, start, inverse = np.empty(n + 9, np.uint16), rans.starts(freq), rans.inverses(freq, BITS)
    states, at = np.full(4, rans.FLOOR, np.uint64), i64(n + 9)
    for i in range(n - 1, -1, -1):
        row = context_of[u64(expected[u64(i)])]
        lane = u64(i & 3)
        states[lane], at = rans.put(states[lane], row, found[u64(i)], freq, start, inverse, BITS, words, at)
    for lane in range(3, -1, -1):
        at -= 2
        words[at] = states[lane] & u64(0xFFFF)
        words[at + 1] = states[lane] >> u64(16)
    return words[at:].copy()


@compiled
def _unite(
    words: Words, plain: Patterns, reference: Patterns, context_of: Contexts, freq: Ints, bits: int
) -> tuple[Patterns, bool]:
    """The numbers again; False if the words and the `bits` plain bits cannot come from :func:`split`."""
    n = len(reference)
    out = np.zeros(n, np.uint32)
    if not 8 <= len(words) <= n + 8:
        return out, False
    room = np.zeros(n + 9, np.uint16)
    room[: len(words)] = words
    start, slot = rans.starts(freq), rans.slots(freq, BITS)
    states = np.empty(4, np.uint64)
    for lane in range(4):
        states[lane] = u64(room[2 * lane]) | u64(room[2 * lane + 1]) << u64(16)
        if states[lane] < u64(rans.FLOOR):
            return out, False
    steps = np.full(LAG, -1, np.int64)
    mean, at, fine = _start(reference), i64(8), True
    held, filled, next_, left = u64(0), i64(0), i64(0), i64(bits)
    for i in range(n):
        lane, other = u64(i & 3), i64(reference[u64(i)])
        exponent = (other >> 23) & 255
        mean = _fade(mean, steps[lane])
        row = context_of[u64(_expected(mean, exponent))]
        symbol, states[lane], at, f = rans.take(states[lane], row, freq, start, slot, BITS, room, at)
        if f == 0:
            return out, False
        if filled < 32:
            if next_ < len(plain):
                held |= u64(plain[u64(next_)]) << u64(filled)
            next_ += 1
            filled += 32
        if symbol < FAR:
            length = (i64(symbol) + 1) >> 1
            keep = max(length - 1, 0)
            apart = i64(held & u64((1 << keep) - 1)) | (i64(1) << keep if length else 0)
            magnitude = (other & 0x7FFFFFFF) + (apart if symbol & 1 else -apart)
            fine &= 0 <= magnitude <= 0x7FFFFFFF
            out[u64(i)] = (other & 0x80000000) | (magnitude & 0x7FFFFFFF)
            steps[lane] = _step_near(length, exponent)
        else:
            keep, turned, to = i64(23), (i64(symbol) - FAR) & 1, (i64(symbol) - FAR) >> 1
            sign = (other >> 31) ^ turned
            out[u64(i)] = sign << 31 | to << 23 | i64(held & u64(0x7FFFFF))
            steps[lane] = max(to, exponent) + 24
        held >>= u64(keep)
        filled -= keep
        left -= keep
    whole = at == len(words) and left == 0
    for lane in range(4):
        whole &= states[lane] == u64(rans.FLOOR)
    return out, bool(fine and whole)


@compiled
def _cost(counts: Ints) -> int:
    """What symbols with these counts by context and their tables cost, in 1/4096 bit."""
    bits = 8 * 4096 * tables.cost(counts.reshape(-1))
    for row in counts:
        bits += rans.entropy(row)
    return bits


def _merged(counts: Ints, cuts: Contexts) -> tuple[Contexts, Ints]:
    """The context of each expected bit length, and the counts by context."""
    context_of = np.searchsorted(cuts, np.arange(EXPECTED), side="right").astype(np.uint8)
    out = np.zeros((len(cuts) + 1, SYMBOLS), np.int64)
    np.add.at(out, context_of, counts)
    return context_of, out


def _cuts(counts: Ints, contexts: int) -> Contexts:
    """Where to cut the expected bit lengths, so that the contexts between hold about equally many symbols."""
    reached = np.cumsum(counts.sum(axis=1))
    shares = [(int(reached[-1]) * i + contexts - 1) // contexts for i in range(1, contexts)]
    return (np.searchsorted(reached, shares, side="left") + 1).astype(np.uint8)


def encode(values: Vector, reference: Vector) -> bytes | None:
    """The code of `values` against `reference`; None if that does not pay."""
    if len(values) < _FEW:
        return None
    patterns, others = (np.require(v, np.float32, KERNEL).view(np.uint32) for v in (values, reference))
    found, expected, counts, plain, bits = split(patterns, others)
    choices = [_cuts(counts, 1 << log) for log in range(MOST_CONTEXTS + 1)]
    costs = [_cost(_merged(counts, cuts)[1]) // (8 * 4096) for cuts in choices]
    log = costs.index(min(costs))
    if costs[log] + bits // 8 >= 4 * len(values):
        return None
    context_of, counts = _merged(counts, choices[log])
    table = tables.quantise(counts)
    words = _push(found, expected, context_of, rans.frequencies(tables.SCALE[table], BITS))
    return b"".join(
        [
            bytes([log]) + choices[log].tobytes() + tables.write_bytes(table),
            varint(len(words)) + symbols.to_bytes(words),
            varint(bits) + plain.astype("<u4", copy=False).tobytes()[: (bits + 7) // 8],
        ]
    )


def decode(reader: Reader, reference: Vector) -> Vector:
    """The next vector, which has the length of `reference`. The caller has claimed it."""
    what = "differences"
    log = reader.byte(what)
    if log > MOST_CONTEXTS:
        raise WireError(f"{what} ask for 2**{log} contexts, at most {1 << MOST_CONTEXTS} are possible")
    cuts = reader.array("u1", (1 << log) - 1, what)
    if (np.diff(cuts.astype(np.int64)) < 0).any():
        raise WireError(f"the contexts of {what} are not in order")
    table = tables.read_bytes(reader, SYMBOLS << log, what).reshape(1 << log, -1)
    count = reader.varint(f"the length of {what}", most=len(reference) + 8)
    words = reader.array("<u2", count, what).astype(np.uint16)
    bits = reader.varint(f"the plain bits of {what}", most=23 * len(reference))
    rest = bytes(reader.take((bits + 7) // 8, what))
    plain = np.frombuffer(rest + bytes(-len(rest) % 4), "<u4").astype(np.uint32)
    context_of = np.searchsorted(cuts, np.arange(EXPECTED), side="right").astype(np.uint8)
    others = np.require(reference, np.float32, KERNEL).view(np.uint32)
    freq = rans.frequencies(tables.SCALE[table], BITS)
    out, fine = _unite(words, plain, others, context_of, freq, bits)
    if not fine:
        raise WireError(f"{what} do not fit their reference and their table of frequencies")
    return out.view(np.float32)
