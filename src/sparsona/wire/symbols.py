"""Code a sequence of small symbols at its entropy, in the context of the last few symbols.

Each symbol has a level (the exponent of a float, the value of a byte). The fading mean of the levels so far puts the
next symbol into one of 1, 2, 4 or 8 contexts, each with a table of its own: neighbouring weights move by similar
amounts, and tensors differ from each other. The encoder takes the number of contexts with the shortest code, tables
included.
"""

from __future__ import annotations

import numpy as np

from sparsona.compiled import compiled, i64
from sparsona.errors import WireError
from sparsona.wire import rans, tables
from sparsona.wire.buffers import Reader, varint
from sparsona.wire.rans import Contexts, Ints, Symbols, Words

EACH = 128
"""The fewest symbols per context: a sender of few symbols cannot ask for many tables."""


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
        here = 8 * 4096 * (tables.cost(choice.reshape(-1)) + (1 << tried))
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
    table = tables.quantise(best)
    freq = tables.frequencies(table, bits)
    words = rans.push(symbols, contexts >> np.uint8(3 - log), freq, rans.starts(freq), bits)
    coarse = cuts[(8 >> log) - 1 :: 8 >> log].tobytes()
    out = b"".join((bytes([log]), coarse, tables.shortened(table.reshape(-1)).data, with_length(words)))
    return out if len(out) < below else None


def decode(reader: Reader, count: int, levels: Contexts, what: str) -> Symbols:
    """Return the next `count` symbols, all of them below `len(levels)`."""
    log = reader.byte(what)
    most = most_contexts(count, len(levels), 3)
    if log > most:
        raise WireError(f"{what} asks for 2**{log} contexts, at most 2**{most} are possible")
    cuts = reader.array("u1", (1 << log) - 1, what)
    table = tables.read_bytes(reader, len(levels) << log, what).reshape(1 << log, -1)
    words, bits = read_words(reader, count, what), table_bits(count)
    freq = tables.frequencies(table, bits)
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
