"""float32 vectors against a reference of the same length, bit for bit.

A number and its reference are compared as magnitudes: exponent and mantissa as one integer of 31 bits, in which
neighbouring floats are one apart, whatever their exponent. If the signs agree and the two are less than 2**23 apart,
the number is *near*. Its symbol is the bit length of the distance; the bits below the top one are written as they are,
with the direction above them. Else the number is *far*. Its symbol is its exponent; the mantissa is written as it is,
and whether the sign turned.

A step of one size is a longer distance from a smaller number, and steps are alike among neighbours. So each number has
a *size of step*: the exponent of its reference plus the bit length of the distance. The mean of each block of 16 is
written first. It says, less the exponent of a number's own reference, what bit length to expect, and so chooses the
code. Nothing that a number needs depends on the number before it: codes are read in four lanes side by side, and the
rest is arithmetic on whole registers.
"""

import numpy as np

from sparsona.compiled import KERNEL, bit_length, compiled, i32, i64, u32, u64
from sparsona.errors import WireError
from sparsona.message import Vector
from sparsona.wire import lanes, rans, symbols
from sparsona.wire.buffers import Bytes, Reader, varint
from sparsona.wire.fields import Patterns
from sparsona.wire.rans import Contexts, Ints, Symbols

BLOCK = 16  # numbers with one mean; those that are left at the end are written as they are
LANES = 4  # number i is in lane i % 4
FAR = 24  # the first symbol of far numbers; those of near ones are their bit lengths
SYMBOLS = FAR + 256

PLAIN = np.minimum(np.arange(SYMBOLS), FAR).astype(np.uint8)  # the bits that follow the code of each symbol
NONE = np.zeros(SYMBOLS, np.uint8)  # the same for means of blocks
EXPECTED = 32  # number of expected bit lengths; larger ones count as the highest
MOST_CONTEXTS = 3  # log2 of the most contexts
JUMP = 127  # the most that the mean of a block may differ from the one before
FIRST = 128  # the value before the first mean
_ROW = 9  # the bits of a symbol below its expected bit length
_CHUNK = 1024  # numbers that are taken together, so that they stay in the fastest memory
_FEW = 64  # shorter vectors are not worth a table
_SIGN = 0x80000000


@compiled
def _survey(patterns: Patterns, others: Patterns) -> tuple[Symbols, Patterns, Bytes, Patterns, Ints]:
    """Return, per number, its symbol combined with the expected bit length, and its plain bits. Per block, return the
    folded step from the mean before. Also return the counts of symbols (in two halves, to be added) and of steps.
    """
    n = len(patterns) // BLOCK * BLOCK
    found, plain = np.empty(n, np.uint16), np.empty(n, np.uint32)
    steps, stepped = np.empty(n // BLOCK, np.uint8), np.zeros(SYMBOLS, np.int64)
    counts = np.zeros(2 * EXPECTED << _ROW, np.uint32)  # halves, since a place that was just written is not ready yet
    symbol, exponent = np.empty(_CHUNK, np.uint32), np.empty(_CHUNK, np.uint32)
    mean = i64(FIRST)
    for start in range(0, n, _CHUNK):
        size = min(_CHUNK, n - start)
        for j in range(size):
            own, other = patterns[u64(start + j)], others[u64(start + j)]
            to, turned = u32(own >> u32(23)) & u32(255), u32(u32(own ^ other) >> u32(31))
            here, there = u32(own & u32(0x7FFFFFFF)), u32(other & u32(0x7FFFFFFF))
            apart = u32(max(here, there) - min(here, there))
            length = bit_length(apart)
            far = (turned != u32(0)) | (length > u32(FAR - 1))
            top = u32(u32(u32(1) << (length & u32(31))) >> u32(1))
            near = apart if here < there else u32(apart ^ top)
            symbol[u64(j)] = u32(u32(FAR) + to) if far else length
            plain[u64(start + j)] = u32(u32(own & u32(0x7FFFFF)) | u32(turned << u32(23))) if far else near
            exponent[u64(j)] = u32(u32(other >> u32(23)) & u32(255))
        for block in range(size // BLOCK):
            total, many, first = u32(0), u32(0), u64(block * BLOCK)
            for j in range(BLOCK):
                s, e = symbol[first + u64(j)], exponent[first + u64(j)]
                still = u32(max(e, u32(3)) - u32(3))
                step = u32(max(u32(s - u32(FAR)), e) + u32(FAR)) if s >= u32(FAR) else (u32(e + s) if s else still)
                says = u32(s | e) != u32(0)  # two zeros say nothing
                total = u32(total + (step if says else u32(0)))
                many = u32(many + (u32(1) if says else u32(0)))
            before, mean = mean, _mean(i64(total), i64(many), mean)
            folded = u64(2 * (mean - before) if mean >= before else 2 * (before - mean) - 1)
            steps[u64(start // BLOCK + block)] = folded
            stepped[folded] += 1
            for j in range(BLOCK):
                bin = _expected(mean, exponent[first + u64(j)])
                found[u64(start) + first + u64(j)] = u32(u32(bin) << u32(_ROW)) | symbol[first + u64(j)]
        for j in range(0, size, 2):
            counts[u64(found[u64(start + j)])] += u32(1)
            counts[u64(found[u64(start + j + 1)]) + u64(EXPECTED << _ROW)] += u32(1)
    return found, plain, steps, counts, stepped


@compiled
def _mean(total: int, many: int, before: int) -> int:
    """Return the mean step size of a block, limited to the range around the mean before."""
    if many == 0:
        return before
    mean = (total + 8) >> 4 if many == 16 else (total + (many >> 1)) // many
    return min(max(mean, before - JUMP), before + JUMP)


@compiled
def _expected(mean: int, exponent: int) -> int:
    """Return the expected bit length of a distance from a number of this exponent."""
    return i32(min(max(i32(i32(mean) - i32(exponent)), i32(0)), i32(EXPECTED - 1)))


@compiled
def _contexts(counts: Patterns, most: int) -> tuple[int, Contexts, Ints]:
    """Return the best number of contexts (as log2, up to `most`), the context of each expected bit length, and the
    counts per context.

    The expected bit lengths are cut so that contexts hold about equally many symbols.
    """
    used, half = np.zeros(1 << _ROW, np.uint32), EXPECTED << _ROW
    for i in range(half):
        counts[u64(i)] += counts[u64(half + i)]
        used[u64(i & ((1 << _ROW) - 1))] |= counts[u64(i)]
    occurring, many = np.empty(1 << _ROW, np.int64), 0
    for symbol in range(1 << _ROW):
        occurring[many] = symbol
        many += used[symbol] > 0
    occurring = occurring[:many]
    few, reached, total = np.zeros((EXPECTED, many), np.int64), np.zeros(EXPECTED, np.int64), i64(0)
    for bin in range(EXPECTED):
        for column in range(many):
            few[bin, column] = counts[bin << _ROW | occurring[column]]
            total += few[bin, column]
        reached[bin] = total
    best, log, context_of = i64(1) << 62, 0, np.zeros(EXPECTED, np.uint8)
    for tried in range(most + 1):
        rows, row, contexts = np.zeros((1 << tried, len(occurring)), np.int64), 0, np.zeros(EXPECTED, np.uint8)
        for bin in range(EXPECTED):
            contexts[bin] = row
            for column in range(len(occurring)):
                rows[row, column] += few[bin, column]
            while row < (1 << tried) - 1 and reached[bin] << tried >= reached[EXPECTED - 1] * (row + 1):
                row += 1
        cost = 8 * 4096 * symbols.table_cost(rows.reshape(-1))
        for row in range(1 << tried):
            cost += rans.entropy(rows[row])
        if cost < best:
            best, log, context_of = cost, tried, contexts
    merged = np.zeros((1 << log, SYMBOLS), np.int64)
    for bin in range(EXPECTED):
        for column in range(len(occurring)):
            merged[context_of[bin], occurring[column]] += few[bin, column]
    return log, context_of, merged


def encode(values: Vector, reference: Vector) -> bytes | None:
    """Return the code of `values` against `reference`; None if it is not shorter, or if the lengths differ."""
    if len(values) < _FEW or len(values) != len(reference):
        return None
    patterns, others = (np.require(v, np.float32, KERNEL).view(np.uint32) for v in (values, reference))
    found, plain, steps, counts, stepped = _survey(patterns, others)
    log, context_of, merged = _contexts(counts, symbols.most_contexts(len(values), FAR, MOST_CONTEXTS))
    table = lanes.tables(merged, stepped)
    short = symbols.shortened(table.reshape(-1))
    bits = int((merged * (table[:-1].astype(np.int64) + PLAIN)).sum())
    if bits // 8 + len(short) + len(steps) // 4 >= 4 * len(patterns):
        return None
    cuts = np.searchsorted(context_of, np.arange(1, 1 << log)).astype(np.uint8)
    by_context = lanes.entries(table[:-1], PLAIN)
    written = np.empty((EXPECTED, 1 << _ROW), np.uint32)
    written[:, :SYMBOLS] = by_context[context_of]
    lane, starts, ends = _write(found, plain, steps, written.reshape(-1), lanes.entries(table[-1:], NONE))
    bounds = list(zip(starts.tolist(), ends.tolist(), strict=True))
    sizes = b"".join(varint(end - begin) for begin, end in bounds)
    rest = patterns[len(patterns) // BLOCK * BLOCK :].astype("<u4", copy=False).tobytes()
    lane_bytes = (lane.data[begin:end] for begin, end in bounds)
    return b"".join((bytes([log]), cuts.data, short.data, sizes, *lane_bytes, rest))


@compiled
def _write(
    found: Symbols, plain: Patterns, steps: Bytes, written: lanes.Entries, of_step: lanes.Entries
) -> tuple[Bytes, Ints, Ints]:
    """Return the lanes, the lane of the means first, and where each has its bytes. Four are written side by side.

    `written` has the entry of each of `found`, `of_step` that of each of `steps`.
    """
    starts, ends = np.zeros(LANES + 1, np.int64), np.zeros(LANES + 1, np.int64)
    # each store is of 8 bytes and begins below what all numbers take at most: the 16 have room for the last one
    room = len(found) // LANES * (lanes.LIMIT + FAR) // 8 + 16
    lane = np.empty(len(steps) * lanes.LIMIT // 8 + 16 + LANES * room, np.uint8)
    held, filled, at = u64(0), u64(0), u64(0)
    for step in steps:
        held, filled, at = lanes.put(of_step[0, step], u32(0), lane, held, filled, at)
    ends[0] = i64(at) + (i64(filled) + 7) // 8
    for i in range(LANES):
        starts[i + 1] = len(lane) - (LANES - i) * room
    a, b, c, d = u64(0), u64(0), u64(0), u64(0)
    e, f, g, h = u64(0), u64(0), u64(0), u64(0)
    p, q, r, s = u64(starts[1]), u64(starts[2]), u64(starts[3]), u64(starts[4])
    for first in range(0, len(found), LANES):
        i = u64(first)
        a, e, p = lanes.put(written[u64(found[i])], plain[i], lane, a, e, p)
        i += u64(1)
        b, f, q = lanes.put(written[u64(found[i])], plain[i], lane, b, f, q)
        i += u64(1)
        c, g, r = lanes.put(written[u64(found[i])], plain[i], lane, c, g, r)
        i += u64(1)
        d, h, s = lanes.put(written[u64(found[i])], plain[i], lane, d, h, s)
    ends[1], ends[2] = i64(p) + (i64(e) + 7) // 8, i64(q) + (i64(f) + 7) // 8
    ends[3], ends[4] = i64(r) + (i64(g) + 7) // 8, i64(s) + (i64(h) + 7) // 8
    return lane, starts, ends


def decode(reader: Reader, reference: Vector) -> Vector:
    """Return the next vector, which has the length of `reference`. The caller has claimed it."""
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
    table = symbols.read_bytes(reader, SYMBOLS * ((1 << log) + 1), what).reshape(-1, SYMBOLS)
    sizes = [reader.varint(f"the length of {what}", most=5 * len(reference)) for _ in range(LANES + 1)]
    ends = np.cumsum(sizes, dtype=np.int64)
    lane = np.zeros(ends[-1] + lanes.SLACK, np.uint8) if ends[-1] <= reader.remaining else np.zeros(0, np.uint8)
    lane[: ends[-1]] = reader.array("u1", int(ends[-1]), what)
    out = np.empty(len(reference), np.uint32)
    end = len(out) // BLOCK * BLOCK
    out[end:] = reader.array("<u4", len(out) - end, what)
    others = np.require(reference, np.float32, KERNEL).view(np.uint32)[:end]
    codes, fine = lanes.readable(table[:-1], PLAIN)
    of_step, right = lanes.readable(table[-1:], NONE)
    row_of = np.searchsorted(cuts, np.arange(EXPECTED), side="right").astype(np.uint32) << np.uint32(lanes.LIMIT)
    if not (fine and right and _decode(lane, ends, others, row_of, codes.reshape(-1), of_step.reshape(-1), out)):
        raise WireError(f"{what} do not fit their tables, or their reference")
    return out.view(np.float32)


@compiled
def _decode(
    lane: Bytes,
    ends: Ints,
    others: Patterns,
    row_of: Patterns,
    codes: lanes.Entries,
    of_mean: lanes.Entries,
    out: Patterns,
) -> bool:
    """Write the numbers of whole blocks to `out`; return False if the lanes cannot come from :func:`_write`.

    `ends` ascend, and `SLACK` bytes follow the last. `others` is of whole blocks, and `out` is no shorter. `row_of`
    says where in `codes` each expected bit length has its table.
    """
    n, fine = len(others), True
    found, plain, row = np.empty(_CHUNK, np.uint32), np.empty(_CHUNK, np.uint32), np.empty(_CHUNK, np.uint32)
    t, p, q, r, s = u64(0), u64(8 * ends[0]), u64(8 * ends[1]), u64(8 * ends[2]), u64(8 * ends[3])
    mean = i64(FIRST)
    for start in range(0, n, _CHUNK):
        size = min(_CHUNK, n - start)
        if t > u64(8 * ends[0]):  # the chunk's 64 codes have at most 10 bits: the last load ends 86 bytes beyond
            return False
        for block in range(0, size, BLOCK):
            t = lanes.get(lane, t, u64(0), of_mean, found, plain, u64(0))
            fine = fine and found[0] != lanes.UNKNOWN
            folded = i64(found[0] & u32(0xFFFF))
            mean += folded >> 1 if folded & 1 == 0 else -((folded + 1) >> 1)
            for j in range(block, block + BLOCK):  # whatever the mean has become, what is expected is from 0 to 31
                row[u64(j)] = row_of[u64(_expected(mean, u32(u32(others[u64(start + j)] >> u32(23)) & u32(255))))]
        for first in range(0, size, BLOCK):
            # four codes of each lane, with at most 34 bits each: the last load ends 20 bytes beyond
            if p > u64(8 * ends[1]) or q > u64(8 * ends[2]) or r > u64(8 * ends[3]) or s > u64(8 * ends[4]):
                return False
            for four in range(first, first + BLOCK, LANES):
                i = u64(four)
                p = lanes.get(lane, p, row[i], codes, found, plain, i)
                i += u64(1)
                q = lanes.get(lane, q, row[i], codes, found, plain, i)
                i += u64(1)
                r = lanes.get(lane, r, row[i], codes, found, plain, i)
                i += u64(1)
                s = lanes.get(lane, s, row[i], codes, found, plain, i)
        fine = fine and _unite(found, plain, others, start, size, out) == 0
    for i, at in enumerate((t, p, q, r, s)):
        fine = fine and (i64(at) + 7) // 8 == ends[i]
    return bool(fine)


@compiled
def _unite(found: lanes.Entries, plain: Patterns, others: Patterns, start: int, size: int, out: Patterns) -> int:
    """Write the numbers of one chunk to `out`; return 0 if they are valid."""
    wrong = u32(0)
    for j in range(size):
        other, entry = others[u64(start + j)], found[u64(j)]
        symbol = u32(entry & u32(0xFFFF))
        keep = u32(min(symbol, u32(FAR)))
        rest = u32(plain[u64(j)] & u32(u32(u32(1) << keep) - u32(1)))
        top = u32(u32(u32(1) << keep) >> u32(1))
        apart, far = u32(rest | top), symbol >= u32(FAR)
        near = u32(other - apart) if u32(rest & top) else u32(other + apart)
        sign = u32(u32(other ^ u32(rest << u32(8))) & u32(_SIGN))
        away = u32(sign | u32(u32(u32(symbol - u32(FAR)) << u32(23)) | u32(rest & u32(0x7FFFFF))))
        out[u64(start + j)] = away if far else near
        beyond = u32(0) if far else u32(u32(near ^ other) & u32(_SIGN))
        wrong = u32(wrong | u32(beyond | u32(entry == u32(lanes.UNKNOWN))))
    return wrong
