"""Kernels of prefix codes (Huffman 1952) in lanes: streams of bits, lowest first, that are read side by side.

A reader learns from a code where the next one begins. It waits for that in one lane while it reads in the others.
"""

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i64, load64, store64, u32, u64
from sparsona.wire.buffers import Bytes
from sparsona.wire.rans import Ints

Entries = npt.NDArray[np.uint32]
"""Per code: the symbol or the code (lower half), the length of the code (above), the length with the plain bits (top
byte).
"""

LIMIT = 10  # the longest code in bits
ONLY = LIMIT + 1  # marks the only symbol of its table, whose code takes no bits
UNKNOWN = 15 << 16  # The entry of a code that is not in its table. It takes no bits.
SLACK = 128
"""Bytes behind the last lane, because a reader checks for the end only from time to time. Between two looks,
:mod:`sparsona.wire.differences` reads at most 86 bytes beyond the end.
"""


@compiled
def lengths(counts: Ints) -> Bytes:
    """Return the code length of each symbol. Counts are halved until no code is longer than `LIMIT`."""
    out, used, many = np.zeros(len(counts), np.uint8), np.empty(len(counts), np.int64), 0
    for symbol in range(len(counts)):
        used[many] = symbol
        many += counts[symbol] > 0
    if many == 1:
        out[used[0]] = ONLY
    if many < 2:
        return out
    weights, order = np.empty(len(counts), np.int64), np.empty(len(counts), np.int64)
    for i in range(many):
        weights[i] = counts[used[i]]
    nodes = 2 * len(counts)
    total, parent, depth = np.empty(nodes, np.int64), np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    while True:
        for i in range(many):  # numpy's sorting takes a second to compile
            at = i
            while at > 0 and weights[order[at - 1]] > weights[i]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = i
        for i in range(many):
            total[i] = weights[order[i]]
        leaf, node = 0, many
        for new in range(many, 2 * many - 1):
            total[new] = 0
            for _ in range(2):  # the two lightest, of which the leaves and the nodes each stand in order
                if leaf < many and (node >= new or total[leaf] <= total[node]):
                    lightest, leaf = leaf, leaf + 1
                else:
                    lightest, node = node, node + 1
                total[new] += total[lightest]
                parent[lightest] = new
        depth[2 * many - 2], deepest = 0, 0
        for i in range(2 * many - 3, -1, -1):
            depth[i] = depth[parent[i]] + 1
            deepest = max(deepest, depth[i])
        if deepest <= LIMIT:
            for i in range(many):
                out[used[order[i]]] = depth[i]
            return out
        for i in range(many):
            weights[i] = (weights[i] + 1) >> 1


@compiled
def tables(counts: Ints, last: Ints) -> Bytes:
    """Return the lengths for each row of `counts`, and for a `last` row."""
    out = np.empty((counts.shape[0] + 1, counts.shape[1]), np.uint8)
    for row in range(len(out)):
        bits = lengths(counts[row] if row < len(counts) else last)
        for symbol in range(len(bits)):
            out[row, symbol] = bits[symbol]
    return out


@compiled
def entries(table: Bytes, plain: Bytes) -> Entries:
    """Return, for rows of lengths, the entry to write for each symbol; `plain` is the number of bits after its code.

    Lengths are at most `ONLY`: those of :func:`lengths` are, and :func:`readable` looks first.
    """
    out, following = np.zeros(table.shape, np.uint32), np.zeros(ONLY + 1, np.int64)
    for row in range(table.shape[0]):
        for length in range(len(following)):
            following[length] = 0
        for symbol in range(table.shape[1]):  # first how many codes there are of each length, then which comes next
            following[table[row, symbol]] += 1
        code, many = 0, 0
        for length in range(1, LIMIT + 1):
            code, many = (code + many) << 1, following[length]
            following[length] = code
        for symbol in range(table.shape[1]):
            length = table[row, symbol]
            if length == ONLY:
                out[row, symbol] = u32(plain[symbol]) << 24
            elif length:
                code, turned = following[length], 0
                following[length] += 1
                for _ in range(length):
                    turned, code = turned << 1 | (code & 1), code >> 1
                out[row, symbol] = turned | i64(length) << 16 | i64(length + plain[symbol]) << 24
    return out


@compiled
def readable(table: Bytes, plain: Bytes) -> tuple[Entries, bool]:
    """Return, for rows of lengths, the entry of each pattern of `LIMIT` bits; and False if a row is not a complete
    prefix code.
    """
    rows, size = table.shape
    out = np.empty((rows, 1 << LIMIT), np.uint32)
    for row in range(rows):
        for code in range(1 << LIMIT):
            out[row, code] = UNKNOWN
        filled = 0
        for symbol in range(size):
            length = table[row, symbol]
            if length > ONLY:
                return out, False
            if length:
                filled += 1 << (LIMIT - length) if length <= LIMIT else 1 << LIMIT
        if filled != 1 << LIMIT and filled:
            return out, False
    written = entries(table, plain)  # no length is above ONLY, and no code has more bits than its length
    for row in range(rows):
        for symbol in range(size):
            if table[row, symbol]:
                bits = table[row, symbol] if table[row, symbol] <= LIMIT else 0
                entry = u32(symbol) | (written[row, symbol] & u32(0xFFFF0000))
                for code in range(written[row, symbol] & u32(0xFFFF), 1 << LIMIT, 1 << bits):
                    out[row, code] = entry
    return out, True


@compiled
def put(entry: int, plain: int, lane: Bytes, held: int, filled: int, at: int) -> tuple[int, int, int]:
    """Write a code and its plain bits; return the held bits, their number, and their place.

    Held bits are written each time, because a branch would take longer. Nothing is checked: eight bytes must stand at
    `at`. At most 7 bits are held, and 34 come.
    """
    code = u64(entry & u32(0xFFFF)) | u64(plain) << (u64(entry >> u32(16)) & u64(15))
    held |= code << filled
    filled += u64(entry >> u32(24))
    store64(lane, at, held)
    return held >> (filled & u64(0x78)), filled & u64(7), at + (filled >> u64(3))


@compiled
def get(lane: Bytes, at: int, row: int, codes: Entries, found: Entries, plain: Entries, i: int) -> int:
    """Read an entry and the bits after it into place `i`; return the bit where the next code begins.

    `row` is the first of a table in `codes`. Nothing is checked: eight bytes must stand at bit `at`, and `1 << LIMIT`
    codes at `row`, a multiple of that.
    """
    held = load64(lane, at >> u64(3)) >> (at & u64(7))
    entry = codes[(held & u64((1 << LIMIT) - 1)) | u64(row)]
    found[i] = entry
    plain[i] = held >> (u64(entry >> u32(16)) & u64(15))
    return at + u64(entry >> u32(24))
