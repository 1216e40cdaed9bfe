"""Code a sequence of small symbols at its entropy, in the context of the last few symbols.

Each symbol has a level (the exponent of a float, the value of a byte). The fading mean of the levels so far puts the
next symbol into one of 1, 2, 4 or 8 contexts, each with a table of its own: neighbouring weights move by similar
amounts, and tensors differ from each other. The encoder takes the number of contexts with the shortest code, tables
included.

A table holds probabilities as bytes on a logarithmic scale, sixteen steps per octave. A step is 4.4 %, so a quantised
probability is at most 2.2 % off, which costs about 0.0001 bit per symbol.
"""

import numpy as np

from sparsona.compiled import compiled, i64
from sparsona.errors import WireError
from sparsona.wire import rans
from sparsona.wire.buffers import Bytes, Reader, varint
from sparsona.wire.rans import Contexts, Ints, Symbols, Words

STEPS = (65536, 68438, 71468, 74632, 77936, 81386, 84990, 88752,
          92682, 96785, 101070, 105545, 110218, 115098, 120194, 125515)  # fmt: skip
"""2**16 times the sixteenth roots of two; written out, since `pow` may differ between machines."""

SCALE: Ints = np.array([0] + [STEPS[(b - 1) % 16] << (b - 1) // 16 for b in range(1, 256)], np.int64)
"""The weight of a byte: 0 is 0, 1 is 2**16, and sixteen more double it."""


@compiled
def _nearest(target: int) -> int:
    """Return the byte from 1 to 255 whose weight is closest to `target`."""
    low, high = 1, 255
    while low < high:
        middle = (low + high + 1) >> 1
        if SCALE[middle] <= target:
            low = middle
        else:
            high = middle - 1
    if low < 255 and target - SCALE[low] > SCALE[low + 1] - target:
        low += 1
    return low


@compiled
def quantise(counts: Ints) -> Bytes:
    """Return the bytes for rows of `counts`; exactly the counts of zero become byte zero."""
    out = np.zeros(counts.shape, np.uint8)
    for row in range(counts.shape[0]):
        top = 1
        for i in range(counts.shape[1]):
            top = max(top, counts[row, i])
        for i in range(counts.shape[1]):
            if counts[row, i] > 0:
                # (scale * count) / top without overflow: counts stay below 2**31
                out[row, i] = _nearest((SCALE[255] * counts[row, i]) // top)
    return out


def frequencies(table: Bytes, bits: int) -> Ints:
    """Return the frequencies out of 2**bits for rows of bytes."""
    return rans.frequencies(SCALE[table], bits)


def read_bytes(reader: Reader, count: int, what: str) -> Bytes:
    """Read a table of `count` bytes."""
    out, used, reached = _lengthen(reader.ahead(2 * count), count)
    reader.take(used, what)
    if reached < count:
        reader.take(1, what)
    if reached > count:
        raise WireError(f"the table of {what} runs over its end")
    return out


@compiled
def shortened(flat: Bytes) -> Bytes:
    """Return a table with its zeros as runs: a zero byte, then the number of further zeros (at most 255).

    >>> shortened(np.array([7, 0, 0, 0, 9], np.uint8))
    array([7, 0, 2, 9], dtype=uint8)
    """
    out = np.empty(2 * len(flat), np.uint8)
    at, size = 0, 0
    while at < len(flat):
        out[size] = flat[at]
        at, size = at + 1, size + 1
        if out[size - 1] == 0:
            run = 0
            while at < len(flat) and run < 255 and flat[at] == 0:
                run, at = run + 1, at + 1
            out[size] = run
            size += 1
    return out[:size]


@compiled
def _lengthen(data: Bytes, count: int) -> tuple[Bytes, int, int]:
    """Return the table, the bytes it took, and its length: below `count` if the bytes ended too soon."""
    out = np.zeros(count, np.uint8)
    at, used = 0, 0
    while at < count and used < len(data):
        byte = data[used]
        if byte:
            out[at] = byte
            at, used = at + 1, used + 1
        elif used + 1 < len(data):
            at, used = at + 1 + i64(data[used + 1]), used + 2
        else:
            return out, used + 1, at
    return out, used, at


@compiled
def table_cost(counts: Ints) -> int:
    """Estimate the bytes that :func:`shortened` takes for a table of these counts."""
    present, changes = 0, 0
    for i in range(len(counts)):
        present += counts[i] > 0
        changes += i > 0 and (counts[i] > 0) != (counts[i - 1] > 0)
    return present + 2 * (changes // 2 + 1)


EACH = 128  # the fewest symbols per context: a sender of few symbols cannot ask for many tables


def table_bits(symbols: int, tables: int = 1, most: int = 14) -> int:
    """Return log2 of the sum of the frequencies: up to four times the number of `symbols`, shared among `tables`.

    >>> table_bits(100), table_bits(10**6), table_bits(1000, tables=50, most=12)
    (8, 14, 6)
    """
    return max(6, min(most, (symbols // tables).bit_length() + 1))


def most_contexts(symbols: int, alphabet: int, most: int) -> int:
    """Return log2 of the largest number of contexts that `symbols` of an alphabet of this size may have.

    It is at most `most`. The tables have at most two entries per symbol.

    >>> [most_contexts(n, 200, 3) for n in (100, 300, 1000, 10**6)]
    [0, 1, 2, 3]
    """
    return max(0, min(most, (symbols // EACH).bit_length() - 1, (2 * symbols // alphabet).bit_length() - 1))


def _cuts(counts: Ints) -> Contexts:
    """Return seven bounds that split symbols, whose means have these counts, into eight contexts of similar weight."""
    reached = np.cumsum(counts)
    at = np.searchsorted(reached, (reached[-1] * np.arange(1, 8) + 7) // 8)
    cuts: Contexts = np.minimum(at + 1, 255).astype(np.uint8)
    return cuts


@compiled
def _joint(symbols: Symbols, means: Contexts, cuts: Contexts, size: int) -> tuple[Contexts, Ints]:
    """Return the context of every symbol, and the number of times that each symbol occurs in each context."""
    context_of, counts = rans.by_mean(cuts), np.zeros((len(cuts) + 1, size), np.int64)
    contexts = np.empty(len(symbols), np.uint8)
    for i in range(len(symbols)):
        contexts[i] = context_of[means[i]]
        counts[contexts[i], symbols[i]] += 1
    return contexts, counts


@compiled
def _choose(finest: Ints, most: int) -> tuple[int, int, Ints]:
    """Return log2 of the best number of contexts (up to `most`), its cost in 1/4096 bit with tables, and its counts."""
    size = finest.shape[1]
    log, cost, best = 0, i64(1) << 62, finest
    for tried in range(most + 1):
        choice = np.zeros((1 << tried, size), np.int64)
        for row in range(8):
            for symbol in range(size):
                choice[row >> (3 - tried), symbol] += finest[row, symbol]
        here = 8 * 4096 * (table_cost(choice.reshape(-1)) + (1 << tried))
        for row in range(1 << tried):
            here += rans.entropy(choice[row])
        if here < cost:
            log, cost, best = tried, here, choice
    return log, cost, best


def encode(symbols: Symbols, levels: Contexts, below: int) -> bytes | None:
    """Return the code of `symbols`, None if it takes `below` bytes or more. `levels[s]` is the level of symbol s."""
    count = len(symbols)
    bits = table_bits(count)  # frequencies are out of 2**bits
    means, counts = rans.means(symbols, levels)
    cuts = _cuts(counts)
    contexts, finest = _joint(symbols, means, cuts, len(levels))
    log, cost, best = _choose(finest, most_contexts(count, len(levels), 3))
    if cost >= below * 8 * 4096 or 2 * np.count_nonzero(best, axis=1).max() > 1 << bits:
        return None
    table = quantise(best)
    freq = frequencies(table, bits)
    words = rans.push(symbols, contexts >> np.uint8(3 - log), freq, rans.starts(freq), bits)
    coarse = cuts[(8 >> log) - 1 :: 8 >> log].tobytes()
    out = b"".join((bytes([log]), coarse, shortened(table.reshape(-1)).data, with_length(words)))
    return out if len(out) < below else None


def decode(reader: Reader, count: int, levels: Contexts, what: str) -> Symbols:
    """Return the next `count` symbols, all of them below `len(levels)`."""
    log = reader.byte(what)
    most = most_contexts(count, len(levels), 3)
    if log > most:
        raise WireError(f"{what} asks for 2**{log} contexts, at most 2**{most} are possible")
    cuts = reader.array("u1", (1 << log) - 1, what)
    table = read_bytes(reader, len(levels) << log, what).reshape(1 << log, -1)
    words, bits = read_words(reader, count, what), table_bits(count)
    freq = frequencies(table, bits)
    start, slot = rans.starts(freq), rans.slots(freq, bits)
    if log:
        symbols, fine = rans.pull_trail(words, count, levels, cuts.copy(), freq, start, slot, bits)
    else:
        symbols, fine = rans.pull(words, np.zeros(count, np.uint8), freq, start, slot, bits)
    if not fine:
        raise WireError(f"{what} does not fit its table of frequencies")
    return symbols


def to_bytes(words: Words) -> bytes:
    """Return words of 16 bits as bytes, the lower one first."""
    return words.astype("<u2", copy=False).tobytes()


def with_length(words: Words) -> bytes:
    """Return the number of words, and the words, as bytes."""
    return varint(len(words)) + to_bytes(words)


def read_words(reader: Reader, symbols: int, what: str) -> Words:
    """Read the words of a stream of `symbols` symbols: at most one per symbol, and the two states."""
    count = reader.varint(f"the length of {what}", most=symbols + 4)
    return reader.array("<u2", count, what).astype(np.uint16)
