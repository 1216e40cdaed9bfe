"""Kernels of the range asymmetric numeral system (Duda 2013): symbols at their entropy, a few nanoseconds
each.

Two states of 32 bits take the symbols in turn and share one stream of 16-bit words. A symbol's probability
is its frequency out of 2**bits, under the table of its context. Frequencies are integers that the frame
carries or that follow from integers in it, so encoder and decoder agree on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i64

Ints = npt.NDArray[np.int64]
Symbols = npt.NDArray[np.uint16]
Contexts = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint16]

FLOOR = 1 << 16
"""States live in FLOOR .. FLOOR**2 - 1 and start at FLOOR."""


@compiled
def frequencies(weights: Ints, bits: int) -> Ints:
    """Rows of `weights` scaled to sum to 2**bits: a positive weight stays positive, zero stays zero.

    A row without weight, or with more positive weights than 2**bits, comes out as zeros.
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
        if left < 0:  # too many were raised to one: take it back from the others, in proportion
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
    """Where each symbol's interval starts."""
    out = np.zeros(freq.shape, np.int64)
    for row in range(freq.shape[0]):
        total = 0
        for i in range(freq.shape[1]):
            out[row, i] = total
            total += freq[row, i]
    return out


@compiled
def slots(freq: Ints, bits: int) -> Symbols:
    """The symbol of every slot 0 .. 2**bits - 1, for each context."""
    out = np.zeros((freq.shape[0], 1 << bits), np.uint16)
    for row in range(freq.shape[0]):
        at = 0
        for i in range(freq.shape[1]):
            for _ in range(freq[row, i]):
                out[row, at] = i
                at += 1
    return out


@compiled
def push(symbols: Symbols, contexts: Contexts, freq: Ints, start: Ints, bits: int) -> Words:
    """Encode: the two states (low word first), then the words in the order in which the decoder wants them."""
    n = len(symbols)
    words = np.empty(n + 4, np.uint16)
    at = n + 4
    even = odd = FLOOR
    for i in range(n - 1, -1, -1):
        row, symbol = contexts[i], symbols[i]
        f = freq[row, symbol]
        state = odd if i & 1 else even
        if state >= f << (32 - bits):
            at -= 1
            words[at] = state & 0xFFFF
            state >>= 16
        quotient = np.uint32(state) // np.uint32(f)
        state = (i64(quotient) << bits) + (state - i64(quotient) * f) + start[row, symbol]
        if i & 1:
            odd = state
        else:
            even = state
    for state in (odd, even):
        at -= 2
        words[at] = state & 0xFFFF
        words[at + 1] = state >> 16
    return words[at:].copy()


@compiled
def pull(words: Words, contexts: Contexts, freq: Ints, start: Ints, slot: Symbols, bits: int) -> tuple[Symbols, bool]:
    """Decode one symbol for each context; False if the words cannot come from :func:`push`."""
    n = len(contexts)
    out = np.zeros(n, np.uint16)
    if len(words) < 4:
        return out, False
    even = i64(words[0]) | i64(words[1]) << 16
    odd = i64(words[2]) | i64(words[3]) << 16
    at, mask, fine = 4, (1 << bits) - 1, even >= FLOOR and odd >= FLOOR
    for i in range(n):
        state = odd if i & 1 else even
        row = contexts[i]
        symbol = slot[row, state & mask]
        f = freq[row, symbol]
        state = f * (state >> bits) + (state & mask) - start[row, symbol]
        if state < FLOOR:
            if at >= len(words) or f == 0:
                return out, False
            state = state << 16 | i64(words[at])
            at += 1
        out[i] = symbol
        if i & 1:
            odd = state
        else:
            even = state
    return out, bool(fine and at == len(words) and even == FLOOR and odd == FLOOR)


@compiled
def by_mean(cuts: Contexts) -> Contexts:
    """The context of a mean level: how many of `cuts` lie at or below it."""
    out = np.zeros(256, np.uint8)
    for mean in range(256):
        for cut in cuts:
            out[mean] += mean >= cut
    return out


@compiled
def trail(levels: Contexts, cuts: Contexts) -> Contexts:
    """The context of every symbol, by the fading mean of the levels before it."""
    context_of = by_mean(cuts)
    out = np.empty(len(levels), np.uint8)
    mean = i64(0)
    for i in range(len(levels)):
        out[i] = context_of[mean >> 4]
        mean += ((i64(levels[i]) << 4) - mean) >> 1
    return out


@compiled
def pull_trail(
    words: Words, n: int, levels: Contexts, cuts: Contexts, freq: Ints, start: Ints, slot: Symbols, bits: int
) -> tuple[Symbols, bool]:
    """Decode `n` symbols whose contexts are those of :func:`trail`; `levels` gives the level of each symbol."""
    out = np.zeros(n, np.uint16)
    if len(words) < 4:
        return out, False
    even = i64(words[0]) | i64(words[1]) << 16
    odd = i64(words[2]) | i64(words[3]) << 16
    at, mask, fine = 4, (1 << bits) - 1, even >= FLOOR and odd >= FLOOR
    context_of = by_mean(cuts)
    mean = i64(0)
    for i in range(n):
        state = odd if i & 1 else even
        row = context_of[mean >> 4]
        symbol = slot[row, state & mask]
        f = freq[row, symbol]
        state = f * (state >> bits) + (state & mask) - start[row, symbol]
        if state < FLOOR:
            if at >= len(words) or f == 0:
                return out, False
            state = state << 16 | i64(words[at])
            at += 1
        out[i] = symbol
        mean += ((i64(levels[symbol]) << 4) - mean) >> 1
        if i & 1:
            odd = state
        else:
            even = state
    return out, bool(fine and at == len(words) and even == FLOOR and odd == FLOOR)


def _log2(number: int) -> int:
    """log2(number) in 1/4096, by repeated squaring of integers: the same everywhere."""
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
    """log2(number) in 1/4096."""
    return i64(_SMALL[number]) if number < 1024 else _log2_of_large(number)


@compiled
def entropy(counts: Any) -> int:
    """What coding symbols with these `counts` costs under their own frequencies, in 1/4096 bit."""
    total, inner = 0, 0
    for count in counts:
        if count > 0:
            total += count
            inner += count * log2_fixed(count)
    if total == 0:
        return 0
    return total * log2_fixed(total) - inner
