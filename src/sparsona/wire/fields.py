"""Kernels that take float32 numbers apart and put them together again.

A number is a sign, an exponent and a mantissa of 23 bits. Its *symbol* is the rank of its exponent among
those that occur, with the top bits of the mantissa (`extra` of them) below it. Of the `width = 23 - extra` bits
that remain, the trailing zeros are coded (`zeros` is their number, `width` if all are zero). The rest is written as
it is. The sign is coded elsewhere (:mod:`sparsona.wire.fields`) or written with the rest.

Why the zeros: an update is a difference of two float32 weights, hence a multiple of the weights' last
place, and has as many trailing zeros as it is smaller than the weights. Whether the bit of value 2**p is zero,
given that all lower bits are, depends mostly on p: one probability for each p describes the zeros of all
exponents.

The signs of weights are noise. Those of an update are not: the gradient of a unit's weights is its error times its
inputs, and inputs behind a ReLU have one sign, so a whole row may go up or down together. Each sign is coded under
a probability learnt for the pattern of the signs before it. Zeros have a probability of their own and leave the
pattern alone. A negative zero costs many bits, and survives.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i64, u64, zeros_at_end
from sparsona.wire.binary import FRESH, SPAN, begin, decide, finish
from sparsona.wire.buffers import Bytes
from sparsona.wire.rans import Contexts, Ints, Symbols, entropy

Patterns = npt.NDArray[np.uint32]

PLACES = 256 + 23  # bit values: exponent field plus bit of the mantissa
DEEPEST = 5  # the most mantissa bits that a symbol may hold


@compiled
def survey(patterns: Patterns) -> tuple[Patterns, Patterns]:
    """Count, for all exponents, the finest symbols (exponent, five mantissa bits) and the trailing zeros."""
    symbols = np.zeros(256 << DEEPEST, np.uint32)
    zeros = np.zeros((256, 24), np.uint32)
    for pattern in patterns:
        bits = i64(pattern)
        symbols[u64((bits >> (23 - DEEPEST)) & ((256 << DEEPEST) - 1))] += np.uint32(1)
        zeros[u64((bits >> 23) & 255), u64(min(zeros_at_end(bits & 0x7FFFFF), 23))] += np.uint32(1)
    return symbols, zeros


@compiled
def place_counts(zeros: Ints, exponent_of: Contexts, width: int) -> Ints:
    """Count for every place how often the bit there was [zero, one], all bits below it being zero."""
    out = np.zeros((PLACES, 2), np.int64)
    for rank in range(zeros.shape[0]):
        for ended in range(24):
            count = zeros[rank, ended]
            if count:
                for bit in range(min(ended, width)):
                    out[exponent_of[rank] + bit, 0] += count
                if ended < width:
                    out[exponent_of[rank] + ended, 1] += count
    return out


@compiled
def plain_bits(zeros: Ints, width: int) -> int:
    """Count the mantissa bits that are written as they are when trailing zeros are coded."""
    total = 0
    for rank in range(zeros.shape[0]):
        for ended in range(min(width, 24)):
            total += zeros[rank, ended] * (width - 1 - ended)
    return total


@compiled
def most_extra(count: int, exponents: int) -> int:
    """Return the most mantissa bits in the symbols of `count` numbers: at most half as many symbols as numbers."""
    extra = 0
    while extra < DEEPEST and exponents << (extra + 2) <= count:
        extra += 1
    return extra


@compiled
def choose(symbols: Ints, zeros: Ints, exponent_of: Contexts) -> tuple[int, int, int]:
    """Choose the cheapest way without the signs: bytes, mantissa bits in the symbol, and whether to code zeros."""
    total = symbols.sum()
    best = (total * 4, 0, 0)
    counts = symbols.copy()
    for step in range(DEEPEST + 1):
        extra = DEEPEST - step
        width = 23 - extra
        size = len(exponent_of) << extra
        if step:
            for i in range(size):
                counts[i] = counts[2 * i] + counts[2 * i + 1]
        places = place_counts(zeros, exponent_of, width)
        coded = 4096 * (8 * 12 + plain_bits(zeros, width))
        for place in range(PLACES):
            if places[place, 0] + places[place, 1]:
                coded += entropy(places[place]) + 8 * 4096
        plain = total * width * 4096
        bits = entropy(counts[:size])
        for i in range(size):
            bits += 8 * 4096 if counts[i] else 0
        cost = (bits + min(coded, plain)) // (8 * 4096)
        if cost < best[0] and extra <= most_extra(total, len(exponent_of)):
            best = (cost, extra, 1 if coded < plain else 0)
    return best


@compiled
def split(
    patterns: Patterns, ranks: Contexts, extra: int, coded: bool, signed: bool
) -> tuple[Symbols, Symbols, Contexts, npt.NDArray[np.uint32], int]:
    """Return symbols, trailing zeros, ranks, and the plain bits (as words, lowest bits first, and their number).

    `coded`: the zeros are coded. `signed`: the signs are coded and do not belong to the plain bits.
    """
    n = len(patterns)
    symbols = np.empty(n, np.uint16)
    zeros = np.empty(n if coded else 0, np.uint16)
    own = np.empty(n if coded else 0, np.uint8)
    words = np.empty((n * 24) // 32 + 2, np.uint32)
    width = 23 - extra
    low = (1 << width) - 1
    held, filled, at = np.uint64(0), 0, 0
    for i in range(n):
        bits = i64(patterns[i])
        rank = i64(ranks[(bits >> 23) & 255])
        symbols[i] = rank << extra | ((bits >> width) & ((1 << extra) - 1))
        rest = bits & low
        keep = width
        if coded:
            ended = min(zeros_at_end(rest), width)
            zeros[i] = ended
            own[i] = rank
            # the lowest one is implied
            rest >>= min(ended + 1, width)
            keep = width - 1 - ended if ended < width else 0
        if not signed:
            rest |= (bits >> 31) << keep
            keep += 1
        held |= np.uint64(rest) << np.uint64(filled)
        filled += keep
        if filled >= 32:
            words[at] = held & np.uint64(0xFFFFFFFF)
            at += 1
            held >>= np.uint64(32)
            filled -= 32
    words[at] = held & np.uint64(0xFFFFFFFF)
    return symbols, zeros, own, words[: at + 1], at * 32 + filled


@compiled
def count_plain(zeros: Symbols, width: int) -> int:
    """Count the mantissa bits that belong to these zeros."""
    total = 0
    for ended in zeros:
        if ended < width:
            total += width - 1 - ended
    return total


@compiled
def unite(
    symbols: Symbols, zeros: Symbols, signs: Bytes, words: npt.NDArray[np.uint32], exponent_of: Contexts, extra: int
) -> Patterns:
    """Return the numbers again; `zeros` and `signs` are empty if they were not coded."""
    n = len(symbols)
    out = np.empty(n, np.uint32)
    width = 23 - extra
    coded, signed = len(zeros) > 0, len(signs) > 0
    held, filled, at = np.uint64(0), 0, 0
    for i in range(n):
        if filled < 32:
            if at < len(words):
                held |= np.uint64(words[at]) << np.uint64(filled)
            at += 1
            filled += 32
        symbol = i64(symbols[i])
        keep = width
        if coded:
            keep = width - 1 - i64(zeros[i]) if zeros[i] < width else 0
        rest = i64(held & np.uint64((1 << keep) - 1))
        held >>= np.uint64(keep)
        filled -= keep
        if signed:
            sign = i64(signs[i])
        else:
            sign = i64(held & np.uint64(1))
            held >>= np.uint64(1)
            filled -= 1
        if coded and zeros[i] < width:
            rest = (rest << 1 | 1) << zeros[i]
        top = i64(exponent_of[symbol >> extra]) << 23 | (symbol & ((1 << extra) - 1)) << width
        out[i] = sign << 31 | top | rest
    return out


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


def write_signs(patterns: Patterns) -> Bytes:
    """Return the code of the signs of `patterns`; empty if they are like noise."""
    count = len(patterns)
    if 32 * _estimate(patterns) > 31 * count:
        return np.zeros(0, np.uint8)
    signs, zeros = (patterns >> np.uint32(31)).astype(np.uint8), (patterns & np.uint32(0x7F800000) == 0).view(np.uint8)
    buffer = np.zeros(count // 8 + 16, np.uint8)
    length = _write(signs, zeros, buffer, count // 8)
    return buffer[: max(0, length)]


def read_signs(data: Bytes, zeros: Bytes) -> Bytes:
    """Return a sign for each place; `zeros` says where the exponent is zero. Any bytes give some signs."""
    signs = np.zeros(len(zeros), np.uint8)
    _read(signs, zeros, data.copy(), 0)  # a frame is read-only
    return signs
