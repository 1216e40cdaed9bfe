"""Code index sets as gaps under a density, at the entropy bound.

If each position is in the set with the same probability p, the number of absent positions before the next present one
is geometric. Coding it as such costs H(p)/p bits per position: the entropy bound. Both sides know the density, since
they know the number of positions.

A gap is split. Its lowest bits are nearly uniform where p is small, and are written as they are. The rest is
a symbol of the rANS coder. Gaps of `top` symbols and more are split again: the symbol `top` stands for that many absent
positions and for more to come. That costs nothing extra, for a geometric gap has no memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i64, u64
from sparsona.errors import WireError
from sparsona.message import IndexSet
from sparsona.wire import rans
from sparsona.wire.buffers import Reader, varint
from sparsona.wire.rans import Ints, Symbols, Words
from sparsona.wire.symbols import to_bytes

BITS = 12  # frequencies are out of 2**12
_SYMBOLS = 256
"""More than a table has: the probability of a symbol is at least 1/64, and the last one stands for 1/16 of all gaps."""

_ONE = 1 << 30

_TWO = 1024  # for this many positions and more, two interleaved states are used: faster, at four extra bytes
PlainWords = npt.NDArray[np.uint32]


@compiled
def _low(size: int, present: int) -> int:
    """Return the number of low bits of a gap that are plain: they leave a symbol a probability of at most 1/32."""
    low = i64(0)
    while present << (low + 6) <= size:
        low += 1
    return low


@compiled
def _weights(size: int, present: int, low: int) -> tuple[Ints, int]:
    """Return the weight of each symbol, out of 2**30, and the symbol of longer gaps."""
    out = np.zeros(_SYMBOLS, np.int64)
    absent = ((size - present) << 30) // size
    for _ in range(low):
        absent = absent * absent >> 30
    beyond, top = i64(_ONE), 0
    while top == 0 or beyond > _ONE >> 4:
        longer = max(1, beyond * absent >> 30)
        out[top] = beyond - longer
        beyond = longer
        top += 1
    out[top] = beyond
    return out, top


@compiled
def _models(tensors: Ints, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """Return for each tensor the frequencies of symbols, the symbol of longer gaps, and the number of plain bits."""
    weights = np.zeros((len(tensors), _SYMBOLS), np.int64)
    tops, lows = np.zeros(len(tensors), np.int64), np.zeros(len(tensors), np.int64)
    for i in range(len(tensors)):
        if 0 < counts[i] < tensors[i]:
            lows[i] = _low(tensors[i], counts[i])
            weights[i], tops[i] = _weights(tensors[i], counts[i], lows[i])
    return rans.frequencies(weights, BITS), tops, lows


@compiled
def _split(indices: IndexSet, tensors: Ints, counts: Ints, tops: Ints, lows: Ints) -> tuple[Symbols, Ints, PlainWords]:
    """Return the symbols, the end of each tensor's symbols, and the plain bits as words, lowest bits first."""
    total, bits, first, at = len(indices), i64(0), i64(0), 0
    ends = np.zeros(len(tensors), np.int64)
    for i in range(len(tensors)):  # one symbol per position, and one for each time that a gap is split
        if 0 < counts[i] < tensors[i]:
            total += (indices[at + counts[i] - 1] - first) // (tops[i] << lows[i])
            bits += counts[i] * lows[i]
        first, at = first + tensors[i], at + counts[i]
    out, words = np.empty(total, np.uint16), np.zeros((bits >> 5) + 2, np.uint32)
    found, taken, first, at = 0, i64(0), i64(0), 0
    for i in range(len(tensors)):
        if 0 < counts[i] < tensors[i]:
            top, low, last = tops[i], lows[i], first - 1
            for index in indices[at : at + counts[i]]:
                gap = index - last - 1
                last = index
                while gap >> low >= top:
                    out[found] = top
                    found += 1
                    gap -= top << low
                out[found] = gap >> low
                found += 1
                rest = u64(gap & ((i64(1) << low) - 1)) << u64(taken & 31)
                words[taken >> 5] |= rest & u64(0xFFFFFFFF)
                words[(taken >> 5) + 1] |= rest >> u64(32)
                taken += low
        first, at = first + tensors[i], at + counts[i]
        ends[i] = found
    return out[:found], ends, words[: (taken + 31) >> 5]


@compiled
def _lanes(positions: int) -> int:
    return 2 if positions >= _TWO else 1


@compiled
def _push(symbols: Symbols, ends: Ints, freq: Ints, lanes: int) -> Words:
    """Return the symbols as words: the states, then the words in the order of the decoder."""
    n = len(symbols)
    words, start, inverse = np.empty(n + 5, np.uint16), rans.starts(freq), rans.inverses(freq, BITS)
    states, at, i = np.full(lanes, rans.FLOOR, np.uint64), i64(n + 5), n - 1
    for row in range(len(ends) - 1, -1, -1):
        first = ends[row - 1] if row else 0
        while i >= first:
            lane = u64(i & (lanes - 1))
            states[lane], at = rans.put(states[lane], row, symbols[u64(i)], freq, start, inverse, BITS, words, at)
            i -= 1
    for lane in range(lanes - 1, -1, -1):
        at -= 2
        words[at] = states[lane] & u64(0xFFFF)
        words[at + 1] = states[lane] >> u64(16)
    return words[at:].copy()


@compiled
def _pull(
    words: Words, plain: PlainWords, tensors: Ints, counts: Ints, freq: Ints, tops: Ints, lows: Ints, out: IndexSet
) -> int:
    """Write the positions into `out`; return 0, 1 if a position is beyond its tensor, or 2 if words are left over."""
    start, slot, lanes = rans.starts(freq), rans.slots(freq, BITS), _lanes(len(out))
    states = np.zeros(lanes, np.uint64)
    if len(words) < 2 * lanes:
        return 2
    for lane in range(lanes):
        states[lane] = u64(words[2 * lane]) | u64(words[2 * lane + 1]) << u64(16)
        if states[lane] < u64(rans.FLOOR):
            return 2
    next_, last_word, taken, found, first, lane = i64(2 * lanes), i64(len(words) - 1), i64(0), i64(0), i64(0), 0
    for row in range(len(tensors)):
        end, stop = first + tensors[row], found + counts[row]
        if counts[row] == tensors[row]:
            for index in range(first, end):
                out[found] = index
                found += 1
        last, top, low = first - 1, tops[row], lows[row]
        while found < stop:
            state = states[lane]
            at = state & u64((1 << BITS) - 1)
            symbol = i64(slot[row, at])
            state = u64(freq[row, symbol]) * (state >> u64(BITS)) + at - u64(start[row, symbol])
            filled = state << u64(16) | u64(words[u64(min(next_, last_word))])
            short = state < u64(rans.FLOOR)
            states[lane] = filled if short else state
            next_ += i64(short)
            lane = (lane + 1) & (lanes - 1)
            if symbol == top:
                last += top << low
            else:
                word = taken >> 5
                both = u64(plain[word]) | u64(plain[word + 1]) << u64(32)
                last += 1 + (symbol << low) + i64(both >> u64(taken & 31) & u64((i64(1) << low) - 1))
                taken += low
                out[u64(found)] = last
                found += 1
            if last >= end:
                return 1
        first = end
    over = next_ != len(words)
    for lane in range(lanes):
        over |= states[lane] != u64(rans.FLOOR)
    return 2 if over else 0


@dataclass(frozen=True, eq=False)
class _Model:
    """The result of :func:`_models` for the number of positions in each tensor. It is shared, so never written to."""

    tensors: Ints
    counts: Ints
    freq: Ints
    tops: Ints
    lows: Ints
    plain_bytes: int


@lru_cache(maxsize=64)
def _model(tensors: tuple[int, ...], counts: tuple[int, ...]) -> _Model:
    """Cache the model: methods that keep a share of each tensor send the same counts repeatedly."""
    sizes, present = np.array(tensors, np.int64), np.array(counts, np.int64)
    freq, tops, lows = _models(sizes, present)
    return _Model(sizes, present, freq, tops, lows, (int((present * lows)[present < sizes].sum()) + 7) // 8)


def encode(indices: IndexSet, tensors: Sequence[int], counts: Sequence[int]) -> bytes:
    """Encode `indices` in consecutive ranges of lengths `tensors`, which hold `counts` of them; each has a density."""
    model = _model(tuple(tensors), tuple(counts))
    words, plain = _encode(indices, model.tensors, model.counts, model.freq, model.tops, model.lows)
    rest = plain.astype("<u4", copy=False).tobytes()[: model.plain_bytes]
    return varint(len(words)) + to_bytes(words) + rest


@compiled
def _encode(
    indices: IndexSet, tensors: Ints, counts: Ints, freq: Ints, tops: Ints, lows: Ints
) -> tuple[Words, PlainWords]:
    symbols, ends, plain = _split(indices, tensors, counts, tops, lows)
    return _push(symbols, ends, freq, _lanes(len(indices))), plain


def decode(reader: Reader, tensors: Sequence[int], counts: Sequence[int]) -> IndexSet:
    """Return the positions again; `counts` are within `tensors`."""
    model = _model(tuple(tensors), tuple(counts))
    length = reader.varint("the length of coded positions", most=reader.remaining // 2)
    words = reader.array("<u2", length, "coded positions").astype(np.uint16)
    rest = reader.array("u1", model.plain_bytes, "coded positions")
    plain = np.zeros(len(rest) // 4 + 2, "<u4")
    plain.view(np.uint8)[: len(rest)] = rest
    out = np.empty(sum(counts), np.int64)
    kernel = model.tensors, model.counts, model.freq, model.tops, model.lows
    wrong = _pull(words, plain.astype(np.uint32, copy=False), *kernel, out)
    if wrong:
        what = (
            "a coded position is beyond its tensor" if wrong == 1 else "coded positions are followed by something else"
        )
        raise WireError(what)
    return out
