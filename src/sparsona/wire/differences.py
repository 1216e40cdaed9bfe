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

from sparsona.compiled import KERNEL, bit_length, compiled, i64, u64
from sparsona.errors import WireError
from sparsona.message import Vector
from sparsona.wire import rans, symbols, tables
from sparsona.wire.buffers import Bytes, Reader, varint
from sparsona.wire.fields import Patterns
from sparsona.wire.rans import Contexts, Ints, Symbols, Words

BITS = 12
"""Frequencies are out of 2**12."""

REACH = 23
"""The longest distance of a near number, in bits."""

FAR = 2 * REACH + 1
"""The first symbol of far numbers; those of near ones are 0 (the same), and two for every bit length."""

SYMBOLS = FAR + 2 * 256

_SYMBOL = 10
"""The bits that a symbol takes beside its expected bit length."""

LAG = 4
"""How many numbers lie between a step and the first number that it helps to predict."""

EXPECTED = 64
"""Expected bit lengths in halves; what is above counts as the highest."""

MOST_CONTEXTS = 4
"""log2 of the most contexts."""

_FEW = 64
"""Shorter vectors are not worth a table."""

_FIRST = 12
"""The bit length that is expected of the first numbers."""


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
    still = max(exponent - 3, 0) if exponent else -1
    return exponent + length if length else still


@compiled
def _step_far(to: int, exponent: int) -> int:
    return max(to, exponent) + 24


@compiled
def _start(reference: Patterns) -> int:
    """The mean before the first step."""
    return (((i64(reference[0]) >> 23) & 255) + _FIRST) << 4


@compiled
def split(patterns: Patterns, reference: Patterns) -> tuple[Symbols, Patterns, Patterns, int]:
    """Symbols (below their expected bit lengths), how often each occurs at each of these, and the plain bits (as words,
    lowest bits first; and how many bits).
    """
    n = len(patterns)
    found = np.empty(n, np.uint16)
    counts = np.zeros((EXPECTED, SYMBOLS), np.uint32)
    words = np.empty((n * 23) // 32 + 2, np.uint32)
    held, filled, at = u64(0), i64(0), i64(0)
    first = second = third = fourth = i64(-1)  # the last steps, the oldest first
    mean = _start(reference)
    for i in range(n):
        own, other = i64(patterns[u64(i)]), i64(reference[u64(i)])
        exponent, to, turned = (other >> 23) & 255, (own >> 23) & 255, (own ^ other) >> 31
        mean = _fade(mean, first)
        bin = _expected(mean, exponent)
        distance = (own & 0x7FFFFFFF) - (other & 0x7FFFFFFF)
        apart = abs(distance)
        length = bit_length(apart)
        if turned == 0 and apart < 1 << REACH:
            symbol, keep, rest = 2 * length - i64(distance > 0), max(length - 1, 0), apart
            step = _step_near(length, exponent)
        else:
            symbol, keep, rest = FAR + 2 * to + turned, i64(23), own
            step = _step_far(to, exponent)
        rest &= (i64(1) << keep) - 1
        first, second, third, fourth = second, third, fourth, step
        found[u64(i)] = symbol | bin << _SYMBOL
        counts[u64(bin), u64(symbol)] += np.uint32(1)
        # a word is written whether it is full or not, and kept if it is: guessing would take longer
        held |= u64(rest) << u64(filled)
        filled += keep
        words[u64(at)] = held & u64(0xFFFFFFFF)
        full = filled >> 5
        at += full
        held >>= u64(full << 5)
        filled &= 31
    words[u64(at)] = held & u64(0xFFFFFFFF)
    return found, counts, words[: at + 1], at * 32 + filled


@compiled
def _apart(both: int, context_of: Contexts) -> tuple[int, int]:
    """Context and symbol of what :func:`split` found."""
    return u64(context_of[u64(both >> _SYMBOL)]), u64(both & ((1 << _SYMBOL) - 1))


@compiled
def _push(found: Symbols, context_of: Contexts, freq: Ints) -> Words:
    """The symbols as words: four states (low word first), then what the decoder wants in its order."""
    n = len(found)
    words, start, inverse = np.empty(n + 9, np.uint16), rans.starts(freq), rans.inverses(freq, BITS)
    states, at = np.full(4, rans.FLOOR, np.uint64), i64(n + 9)
    for i in range(n - 1, n // 4 * 4 - 1, -1):
        row, symbol = _apart(found[u64(i)], context_of)
        states[i & 3], at = rans.put(states[i & 3], row, symbol, freq, start, inverse, BITS, words, at)
    a, b, c, d = states[0], states[1], states[2], states[3]
    for i in range(n // 4 * 4 - 4, -1, -4):
        k = u64(i)
        row, symbol = _apart(found[k + u64(3)], context_of)
        d, at = rans.put(d, row, symbol, freq, start, inverse, BITS, words, at)
        row, symbol = _apart(found[k + u64(2)], context_of)
        c, at = rans.put(c, row, symbol, freq, start, inverse, BITS, words, at)
        row, symbol = _apart(found[k + u64(1)], context_of)
        b, at = rans.put(b, row, symbol, freq, start, inverse, BITS, words, at)
        row, symbol = _apart(found[k], context_of)
        a, at = rans.put(a, row, symbol, freq, start, inverse, BITS, words, at)
    for state in (d, c, b, a):
        at -= 2
        words[at] = state & u64(0xFFFF)
        words[at + 1] = state >> u64(16)
    return words[at:].copy()


@compiled
def _unite(
    words: Words, plain: Patterns, reference: Patterns, context_of: Contexts, freq: Ints, bits: int, out: Patterns
) -> bool:
    """The numbers again, into `out`; False if the words and the `bits` plain bits cannot come from :func:`split`.

    Two words more than the plain bits need stand behind them.
    """
    n = len(reference)
    if not 8 <= len(words) <= n + 8:
        return False
    used, slot, interval = _intervals(freq)
    states = np.empty(4, np.uint64)
    for lane in range(4):
        states[lane] = u64(words[2 * lane]) | u64(words[2 * lane + 1]) << u64(16)
        if states[lane] < u64(rans.FLOOR):
            return False
    last, last_plain = i64(len(words) - 1), u64(len(plain) - 2)
    steps = np.full(LAG, -1, np.int64)
    mean, at, taken, fine = _start(reference), i64(8), u64(0), True
    for i in range(n):
        lane, other = u64(i & 3), i64(reference[u64(i)])
        exponent = (other >> 23) & 255
        mean = _fade(mean, steps[lane])
        row = u64(context_of[u64(_expected(mean, exponent))])
        low = states[lane] & u64((1 << BITS) - 1)
        rank = u64(slot[row, low])
        both = u64(interval[row, rank])
        state = (both >> u64(16)) * (states[lane] >> u64(BITS)) + low - (both & u64(0xFFFF))
        filled = state << u64(16) | u64(words[u64(min(at, last))])
        short = state < u64(rans.FLOOR)
        states[lane] = filled if short else state
        at += i64(short)
        fine &= both > u64(0)
        symbol = i64(used[rank])
        word = min(taken >> u64(5), last_plain)
        rest = i64((u64(plain[word]) | u64(plain[word + u64(1)]) << u64(32)) >> (taken & u64(31)))
        length = (symbol + 1) >> 1
        near = symbol < FAR
        keep = max(length - 1, 0) if near else i64(23)
        rest &= (i64(1) << keep) - 1
        taken += u64(keep)
        if near:
            apart = rest | (i64(length > 0) << keep)
            magnitude = (other & 0x7FFFFFFF) + (apart if symbol & 1 else -apart)
            fine &= magnitude >> 31 == 0
            out[u64(i)] = (other & 0x80000000) | (magnitude & 0x7FFFFFFF)
            steps[lane] = _step_near(length, exponent)
        else:
            to, turned = (symbol - FAR) >> 1, (symbol - FAR) & 1
            out[u64(i)] = ((other >> 31) ^ turned) << 31 | to << 23 | rest
            steps[lane] = _step_far(to, exponent)
    for lane in range(4):
        fine &= states[lane] == u64(rans.FLOOR)
    return bool(fine and at == len(words) and i64(taken) == bits)


@compiled
def _intervals(freq: Ints) -> tuple[Symbols, Symbols, npt.NDArray[np.uint32]]:
    """The symbols that occur; for each context, which of them has which slot; their frequencies (upper half) and
    starts (lower half).
    """
    contexts, size = freq.shape
    used, many = np.zeros(size, np.uint16), 0
    for symbol in range(size):
        if freq[:, symbol].any():
            used[many] = symbol
            many += 1
    slot = np.zeros((contexts, 1 << BITS), np.uint16)
    interval = np.zeros((contexts, max(many, 1)), np.uint32)
    for row in range(contexts):
        at = 0
        for rank in range(many):
            f = freq[row, used[rank]]
            interval[row, rank] = f << 16 | at
            slot[row, at : at + f] = rank
            at += f
    return used, slot, interval


@compiled
def _contexts(counts: Patterns, most: int) -> tuple[int, Contexts, Ints, int]:
    """The best number of contexts (as log2, up to `most`), their cuts, the counts in each, and the cost in bytes.

    The expected bit lengths are cut so that contexts hold about equally many symbols.
    """
    bins, size = counts.shape
    by_symbol, reached = np.zeros(size, np.int64), np.zeros(bins, np.int64)
    for bin in range(bins):
        for symbol in range(size):
            by_symbol[symbol] += counts[bin, symbol]
            reached[bin] += counts[bin, symbol]
    columns, reached = np.flatnonzero(by_symbol), np.cumsum(reached)
    best, log, cut = i64(1) << 62, 0, np.zeros(0, np.uint8)
    merged = np.zeros((1, size), np.int64)
    for tried in range(most + 1):
        many = 1 << tried
        cuts, rows = np.zeros(many - 1, np.uint8), np.zeros((many, size), np.int64)
        row = 0
        for bin in range(bins):
            for column in columns:
                rows[row, column] += counts[bin, column]
            while row < many - 1 and reached[bin] * many >= reached[-1] * (row + 1):
                cuts[row] = bin + 1
                row += 1
        cost = 8 * 4096 * tables.cost(rows.reshape(-1))
        for row in range(many):
            cost += rans.entropy(rows[row])
        if cost < best:
            best, log, cut, merged = cost, tried, cuts, rows
    return log, cut, merged, best // (8 * 4096)


@compiled
def _context_of(cuts: Contexts) -> Contexts:
    """The context of each expected bit length: how many of the cuts lie at or below it."""
    out = np.zeros(EXPECTED, np.uint8)
    for cut in cuts:
        for bin in range(cut, EXPECTED):
            out[bin] += 1
    return out


def encode(values: Vector, reference: Vector) -> bytes | None:
    """The code of `values` against `reference`; None if that does not pay."""
    if len(values) < _FEW:
        return None
    patterns, others = (np.require(v, np.float32, KERNEL).view(np.uint32) for v in (values, reference))
    start, plain, bits = _encode(patterns, others, symbols.most_contexts(len(values), FAR, MOST_CONTEXTS))
    if not len(start):
        return None
    return b"".join((start.data, varint(bits), plain.astype("<u4", copy=False).view(np.uint8).data[: (bits + 7) // 8]))


@compiled
def _encode(patterns: Patterns, others: Patterns, most: int) -> tuple[Bytes, Patterns, int]:
    """The coded symbols (none if they do not pay), the plain bits as words, and how many bits."""
    found, counts, plain, bits = split(patterns, others)
    log, cuts, merged, cost = _contexts(counts, most)
    if cost + bits // 8 >= 4 * len(patterns):
        return np.zeros(0, np.uint8), plain, bits
    table = tables.quantise(merged)
    words = _push(found, _context_of(cuts), tables.frequencies(table, BITS))
    return tables.joined(log, cuts, table, words), plain, bits


def decode(reader: Reader, reference: Vector) -> Vector:
    """The next vector, which has the length of `reference`. The caller has claimed it."""
    what = "differences"
    if len(reference) < _FEW:
        raise WireError(f"{what} of {len(reference)} numbers cannot be, at least {_FEW} are needed")
    log = reader.byte(what)
    most = symbols.most_contexts(len(reference), FAR, MOST_CONTEXTS)
    if log > most:
        raise WireError(f"{what} ask for 2**{log} contexts, at most 2**{most} are possible")
    cuts = reader.array("u1", (1 << log) - 1, what)
    if cuts.tolist() != sorted(cuts.tolist()):
        raise WireError(f"the contexts of {what} are not in order")
    table = tables.read_bytes(reader, SYMBOLS << log, what).reshape(1 << log, -1)
    count = reader.varint(f"the length of {what}", most=len(reference) + 8)
    words = reader.array("<u2", count, what).astype(np.uint16)
    bits = reader.varint(f"the plain bits of {what}", most=23 * len(reference))
    rest = reader.array("u1", (bits + 7) // 8, what)
    plain = np.zeros(len(rest) // 4 + 3, "<u4")
    plain.view(np.uint8)[: len(rest)] = rest
    others = np.require(reference, np.float32, KERNEL).view(np.uint32)
    out, fine = _decode(words, plain.astype(np.uint32, copy=False), others, cuts, table, bits)
    if not fine:
        raise WireError(f"{what} do not fit their reference and their table of frequencies")
    return out.view(np.float32)


@compiled
def _decode(
    words: Words, plain: Patterns, reference: Patterns, cuts: Contexts, table: Bytes, bits: int
) -> tuple[Patterns, bool]:
    out = np.empty(len(reference), np.uint32)
    freq = tables.frequencies(table, BITS)
    return out, _unite(words, plain, reference, _context_of(cuts), freq, bits, out)
