"""Code vectors of few levels in long runs, such as the clustered updates of pFedNet.

Each tensor that is not empty starts with one bit: 1 if it follows as plain floats. Else its runs are written:

- the number of runs and the number of levels, in Elias gamma;
- the levels, ascending, in 32 bits each;
- the first run's level, in ceil(log2 levels) bits;
- for each other run its level relative to the last one's, in ceil(log2(levels - 1)) bits, since neighbours differ;
- the length of each run but the last, in gamma. The last run takes what remains.

Runs are runs of bit patterns: -0.0 is not 0.0.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled, i64
from sparsona.errors import WireError
from sparsona.message import Vector
from sparsona.wire import floats
from sparsona.wire.buffers import Bytes, Reader, varint
from sparsona.wire.fields import Patterns
from sparsona.wire.rans import Ints

RUNS, FLOATS = 0, 1


def runs(values: Vector) -> tuple[Ints, Patterns, Ints]:
    """Return the lengths of the runs, the levels in ascending order (as bit patterns), and the level of each run."""
    patterns = np.ascontiguousarray(values).view(np.uint32)
    starts = np.flatnonzero(np.concatenate(([True], patterns[1:] != patterns[:-1])))
    lengths = np.diff(starts, append=len(patterns))
    # negative numbers descend as patterns: inverted, patterns sort as numbers do
    own, top = patterns[starts], np.uint32(1 << 31)
    order, which = np.unique(np.where(own & top, ~own, own | top), return_inverse=True)
    return lengths, np.where(order & top, order ^ top, ~order), which.astype(np.int64)


def bits(values: Vector) -> int:
    """Return the bits that the runs of one tensor take, without the flag: the measure of the papers.

    >>> bits(np.full(1000, 0.5, np.float32))  # one run, one level: two bits of gamma and the level
    34
    """
    lengths, levels, _ = runs(values)
    count = len(levels)
    steps = (len(lengths) - 1) * _bits_for(count - 1)
    return (
        gamma_bits(np.array([len(lengths), count])) + 32 * count + _bits_for(count) + steps + gamma_bits(lengths[:-1])
    )


@compiled
def gamma_bits(numbers: Ints) -> int:
    """Return the bits that Elias gamma takes: 2 floor(log2 n) + 1 for each n >= 1."""
    total = 0
    for number in numbers:
        total += 1
        while number > 1:
            number >>= 1
            total += 2
    return total


def encode(sizes: Sequence[int], values: Vector, floats: Callable[[Vector], bytes]) -> bytes:
    """Encode `values` in tensors of `sizes`, which the receiver knows; `floats` writes the tensors without runs."""
    stream: list[npt.NDArray[np.uint8]] = []
    plain: list[Vector] = []
    for tensor in np.split(values, np.cumsum(sizes)[:-1]) if len(sizes) else []:
        if len(tensor):
            total = bits(tensor)
            if total < 32 * len(tensor):
                stream.append(_write(*runs(tensor), total))
            else:
                stream.append(np.ones(1, np.uint8))
                plain.append(tensor)
    body = np.packbits(np.concatenate([np.zeros(0, np.uint8), *stream])).tobytes()
    out = bytes([RUNS]) + varint(len(body)) + body + (floats(np.concatenate(plain)) if plain else b"")
    other = bytes([FLOATS]) + floats(values)
    return min(out, other, key=len)


def decode(reader: Reader, sizes: Sequence[int]) -> Vector:
    """Return the next vector in tensors of `sizes`. The caller has claimed it."""
    way = reader.byte("the coding of levels")
    if way == FLOATS:
        return floats.decode(reader, sum(sizes))
    if way != RUNS:
        raise WireError(f"levels are coded in way {way}, which does not exist")
    most = min(reader.remaining, 4 * sum(sizes) + 1)  # an honest sender writes floats before it needs more
    body = reader.array("u1", reader.varint("the length of runs", most=most), "runs")
    stream = np.unpackbits(body)
    out = np.zeros(sum(sizes), np.uint32)
    first = at = 0
    plain: list[slice] = []
    for size in sizes:
        if size:
            here = slice(first, first + size)
            if at < len(stream) and stream[at]:
                plain.append(here)
                at += 1
            else:
                at = _read(stream, at + 1, out[here])
                if at < 0:
                    raise WireError(f"the runs of a tensor of {size} entries are damaged")
        first += size
    if len(stream) - at not in range(8) or stream[at:].any():
        raise WireError("runs are followed by something else")
    if plain:
        rest = floats.decode(reader, sum(s.stop - s.start for s in plain)).view(np.uint32)
        for here in plain:
            out[here], rest = rest[: here.stop - here.start], rest[here.stop - here.start :]
    return out.view(np.float32)


@compiled
def _bits_for(choices: int) -> int:
    """Return ceil(log2 choices)."""
    count = 0
    while choices - 1 >> count > 0:
        count += 1
    return count


@compiled
def _put(out: Bytes, at: int, number: int, count: int) -> int:
    for bit in range(count - 1, -1, -1):
        out[at] = (number >> bit) & 1
        at += 1
    return at


@compiled
def _put_gamma(out: Bytes, at: int, number: int) -> int:
    log = 0
    while number >> (log + 1):
        log += 1
    return _put(out, at + log, number, log + 1)


@compiled
def _write(lengths: Ints, levels: Patterns, which: Ints, total: int) -> Bytes:
    out = np.zeros(total + 1, np.uint8)
    count = len(levels)
    at = _put_gamma(out, 1, len(lengths))
    at = _put_gamma(out, at, count)
    for level in levels:
        at = _put(out, at, i64(level), 32)
    at = _put(out, at, which[0], _bits_for(count))
    for i in range(len(lengths)):
        if i:
            at = _put(out, at, (which[i] - which[i - 1] - 1) % count, _bits_for(count - 1))
        if i < len(lengths) - 1:
            at = _put_gamma(out, at, lengths[i])
    return out


@compiled
def _get(bits: Bytes, at: int, count: int) -> int:
    number = i64(0)
    for i in range(at, at + count):
        number = number << 1 | i64(bits[i])
    return number


@compiled
def _read_gamma(bits: Bytes, at: int, count: int) -> tuple[Ints, int]:
    """Return `count` numbers from bit `at` on, and the next bit; -1 if bits run out or a number exceeds 62 bits."""
    out = np.zeros(count, np.int64)
    for i in range(count):
        log = 0
        while at < len(bits) and bits[at] == 0:
            log += 1
            at += 1
        if log > 61 or at + log >= len(bits):
            return out, -1
        for _ in range(log + 1):
            out[i] = out[i] << 1 | bits[at]
            at += 1
    return out, at


@compiled
def _read(bits: Bytes, at: int, out: Patterns) -> int:
    """Read one tensor from bit `at` on; return the bit after it, or -1 if the bits are damaged."""
    head, at = _read_gamma(bits, at, 2)
    if at < 0:
        return -1
    count, levels = head[0], head[1]
    if count > len(out) or levels > count or (levels == 1 and count > 1) or at + 32 * levels > len(bits):
        return -1
    palette = np.empty(levels, np.uint32)
    for i in range(levels):
        palette[i] = _get(bits, at, 32)
        at += 32
    first, step = _bits_for(levels), _bits_for(levels - 1)
    filled = 0
    which = i64(0)
    for i in range(count):
        width = step if i else first
        if at + width > len(bits):
            return -1
        read = _get(bits, at, width)
        at += width
        if read >= (levels - 1 if i else levels):
            return -1
        which = (which + 1 + read) % levels if i else read
        length = len(out) - filled
        if i < count - 1:
            one, at = _read_gamma(bits, at, 1)
            if at < 0 or one[0] >= length:
                return -1
            length = one[0]
        out[filled : filled + length] = palette[which]
        filled += length
    return at
