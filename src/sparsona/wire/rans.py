"""Kernels of the range asymmetric numeral system (Duda 2013): symbols at their entropy, in nanoseconds.

Two states of 32 bits alternate and share one stream of 16-bit words. A symbol's probability
is its frequency out of 2**bits, under the table of its context. Frequencies are integers that the frame
carries or that follow from integers in it, so encoder and decoder agree on every machine.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i64, u64

Ints = npt.NDArray[np.int64]
Symbols = npt.NDArray[np.uint16]
Contexts = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint16]
Inverses = npt.NDArray[np.uint64]

FLOOR = 1 << 16  # States live in FLOOR .. FLOOR**2 - 1 and start at FLOOR.


@compiled
def frequencies(weights: Ints, bits: int) -> Ints:
    """Return the rows of `weights` scaled to sum to 2**bits: a positive weight stays positive, zero stays zero.

    A row without weight, or with more positive weights than 2**bits, becomes zeros.
    """
    rows, columns = weights.shape
    out = np.zeros((rows, columns), np.int64)
    for row in range(rows):
        total, used, best = 0, 0, 0
        for i in range(columns):
            total += weights[row, i]
            used += weights[row, i] > 0
            if weights[row, i] > weights[row, best]:
                best = i
        if total == 0 or used > (1 << bits):
            continue
        left = 1 << bits
        for i in range(columns):
            if weights[row, i] > 0:
                out[row, i] = max(1, (weights[row, i] << bits) // total)
                left -= out[row, i]
        if left < 0:  # too many were raised to one: take the excess from the others, in proportion
            spare, short = (1 << bits) - left - used, -left
            for i in range(columns):
                if out[row, i] > 1:
                    cut = (out[row, i] - 1) * short // spare
                    out[row, i] -= cut
                    left += cut
            for i in range(columns):
                if left < 0 and out[row, i] > 1:
                    out[row, i] -= 1
                    left += 1
        out[row, best] += left
    return out


@compiled
def starts(freq: Ints) -> Ints:
    """Return the start of each symbol's interval."""
    out = np.zeros(freq.shape, np.int64)
    for row in range(freq.shape[0]):
        total = 0
        for i in range(freq.shape[1]):
            out[row, i] = total
            total += freq[row, i]
    return out


@compiled
def slots(freq: Ints, bits: int) -> Symbols:
    """Return the symbol of every slot 0 .. 2**bits - 1, for each context."""
    out = np.zeros((freq.shape[0], 1 << bits), np.uint16)
    for row in range(freq.shape[0]):
        at = 0
        for i in range(freq.shape[1]):
            for _ in range(freq[row, i]):
                out[row, at] = i
                at += 1
    return out


@compiled
def inverses(freq: Ints, bits: int) -> Inverses:
    """Return factors to divide by: state * factor >> (32 + bits) is state // frequency, for all states that occur."""
    out = np.zeros(freq.shape, np.uint64)
    for row in range(freq.shape[0]):
        for i in range(freq.shape[1]):
            if freq[row, i] > 0:
                out[row, i] = ((i64(1) << (32 + bits)) + freq[row, i] - 1) // freq[row, i]
    return out


@compiled
def put(
    state: int, row: int, symbol: int, freq: Ints, start: Ints, inverse: Inverses, bits: int, words: Words, at: int
) -> tuple[int, int]:
    """Return the state with one more symbol in it, and the place where the words now begin.

    The word is always written and only kept if the state is full, because a branch would take longer.
    """
    f = u64(freq[row, symbol])
    words[u64(at - 1)] = state & u64(0xFFFF)
    full = state >= f << u64(32 - bits)
    state = state >> u64(16) if full else state
    quotient = state * inverse[row, symbol] >> u64(32 + bits)
    return (quotient << u64(bits)) + (state - quotient * f) + u64(start[row, symbol]), at - i64(full)


@compiled
def push(symbols: Symbols, contexts: Contexts, freq: Ints, start: Ints, bits: int) -> Words:
    """Encode: return the two states (low word first), then the words in the order of the decoder."""
    n = len(symbols)
    words, inverse = np.empty(n + 5, np.uint16), inverses(freq, bits)
    at, even, odd = i64(n + 5), u64(FLOOR), u64(FLOOR)
    if n % 2:
        even, at = put(even, contexts[n - 1], symbols[n - 1], freq, start, inverse, bits, words, at)
    for i in range(n // 2 * 2 - 2, -1, -2):
        here, after = u64(i), u64(i + 1)
        odd, at = put(odd, contexts[after], symbols[after], freq, start, inverse, bits, words, at)
        even, at = put(even, contexts[here], symbols[here], freq, start, inverse, bits, words, at)
    for state in (odd, even):
        at -= 2
        words[at] = state & u64(0xFFFF)
        words[at + 1] = state >> u64(16)
    return words[at:].copy()


@compiled
def _begin(words: Words, n: int) -> tuple[Words, int, int, bool]:
    """Return padded words, so that `n` symbols cannot read past the end; the two states; and True if they are valid."""
    room = np.zeros(n + 5, np.uint16)
    if not 4 <= len(words) <= n + 4:
        return room, u64(0), u64(0), False
    for i in range(len(words)):
        room[i] = words[i]
    even = u64(room[0]) | u64(room[1]) << u64(16)
    odd = u64(room[2]) | u64(room[3]) << u64(16)
    return room, even, odd, even >= u64(FLOOR) and odd >= u64(FLOOR)


@compiled
def take(
    state: int, row: int, freq: Ints, start: Ints, slot: Symbols, bits: int, words: Words, at: int
) -> tuple[int, int, int, int]:
    """Take one symbol: return it, the state, the place of the next word, and the symbol's frequency (0 if invalid)."""
    low = state & u64((1 << bits) - 1)
    symbol = slot[row, low]
    f = u64(freq[row, symbol])
    state = f * (state >> u64(bits)) + low - u64(start[row, symbol])
    filled = state << u64(16) | u64(words[u64(at)])
    short = state < u64(FLOOR)
    return symbol, filled if short else state, at + i64(short), f


@compiled
def pull(words: Words, contexts: Contexts, freq: Ints, start: Ints, slot: Symbols, bits: int) -> tuple[Symbols, bool]:
    """Decode one symbol per context; return False if :func:`push` cannot have made the words."""
    n = len(contexts)
    out = np.zeros(n, np.uint16)
    room, even, odd, fine = _begin(words, n)
    if not fine:
        return out, False
    at, rarest = i64(4), u64(1)
    for i in range(0, n // 2 * 2, 2):
        here, after = u64(i), u64(i + 1)
        out[here], even, at, f = take(even, contexts[here], freq, start, slot, bits, room, at)
        out[after], odd, at, g = take(odd, contexts[after], freq, start, slot, bits, room, at)
        rarest = min(rarest, f, g)
    if n % 2:
        out[n - 1], even, at, f = take(even, contexts[n - 1], freq, start, slot, bits, room, at)
        rarest = min(rarest, f)
    return out, bool(rarest > 0 and at == len(words) and even == u64(FLOOR) and odd == u64(FLOOR))


@compiled
def fade(mean: int, level: int) -> int:
    """Return the fading mean of levels, in sixteenths; the last level counts half."""
    return mean + (((level << 4) - mean) >> 1)


@compiled
def by_mean(cuts: Contexts) -> Contexts:
    """Return the context of each mean level: the number of `cuts` at or below it."""
    out = np.zeros(256, np.uint8)
    for mean in range(256):
        for cut in cuts:
            out[mean] += mean >= cut
    return out


@compiled
def means(symbols: Symbols, levels: Contexts) -> tuple[Contexts, Ints]:
    """Return the fading mean of the levels before each symbol, and the number of times that each mean occurs."""
    out, counts = np.empty(len(symbols), np.uint8), np.zeros(256, np.int64)
    mean = i64(0)
    for i in range(len(symbols)):
        out[i] = mean >> 4
        counts[mean >> 4] += 1
        mean = fade(mean, i64(levels[symbols[i]]))
    return out, counts


@compiled
def pull_trail(
    words: Words, n: int, levels: Contexts, cuts: Contexts, freq: Ints, start: Ints, slot: Symbols, bits: int
) -> tuple[Symbols, bool]:
    """Decode `n` symbols, each in the context of the :func:`means` before it; `levels` has the level of each symbol."""
    out = np.zeros(n, np.uint16)
    room, even, odd, fine = _begin(words, n)
    if not fine:
        return out, False
    context_of = by_mean(cuts)
    at, rarest, mean = i64(4), u64(1), i64(0)
    for i in range(n):
        row = context_of[u64(mean >> 4)]
        if i & 1:
            symbol, odd, at, f = take(odd, row, freq, start, slot, bits, room, at)
        else:
            symbol, even, at, f = take(even, row, freq, start, slot, bits, room, at)
        out[u64(i)] = symbol
        rarest = min(rarest, f)
        mean = fade(mean, i64(levels[symbol]))
    return out, bool(rarest > 0 and at == len(words) and even == u64(FLOOR) and odd == u64(FLOOR))


def _log2(number: int) -> int:
    """Return log2(number) in 1/4096, by repeated squaring of integers: the same on every machine."""
    whole = 0
    while number >> (whole + 1):
        whole += 1
    mantissa = (number << 30) >> whole if whole <= 30 else number >> (whole - 30)
    fraction = 0
    for _ in range(12):
        mantissa = (mantissa * mantissa) >> 30
        fraction <<= 1
        if mantissa >> 31:
            mantissa >>= 1
            fraction |= 1
    return whole << 12 | fraction


_SMALL = np.array([0] + [_log2(number) for number in range(1, 1024)], np.int64)
_log2_of_large = compiled(_log2)


@compiled
def log2_fixed(number: int) -> int:
    """Return log2(number) in 1/4096."""
    return i64(_SMALL[number]) if number < 1024 else _log2_of_large(number)


@compiled
def entropy(counts: Any) -> int:
    """Return the cost of coding symbols with these `counts` under their own frequencies, in 1/4096 bit."""
    total, inner = 0, 0
    for count in counts:
        if count > 0:
            total += count
            inner += count * log2_fixed(count)
    if total == 0:
        return 0
    return total * log2_fixed(total) - inner
