"""Code index sets in the shortest of five ways.

`bitmap` and `list` are the usual ones. `gaps` codes under one density for the vector, `tensor gaps`
under a density for each tensor, both at their entropy. `grid` learns the pattern of the mask and wins on
real updates. A set of more than half of the positions is written as the absent positions, where that is shorter.
An empty set and a full one take no byte.
"""

import math
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from sparsona.bits import bitmap, places
from sparsona.compiled import KERNEL
from sparsona.errors import WireError
from sparsona.message import IndexSet
from sparsona.wire import gaps, grid, rans
from sparsona.wire.buffers import Bytes, Piece, Reader, varint

BITMAP, LIST, GAPS, TENSOR_GAPS, GRID = range(5)
_ABSENT = 16
_LAYOUT = 32

MOST = 2**31 - 1  # the longest vector whose positions can be sent
_ALWAYS = 65536  # masks up to this length are always tried as a grid; longer ones only if a sample shows structure


@lru_cache(maxsize=1024)
def bound(size: int, counts: tuple[int, ...], tensors: tuple[int, ...]) -> float:
    """Return the entropy bound in bytes: log2 of the number of sets with these counts, in all or in each tensor."""

    def bits(n: int, k: int) -> float:
        return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)

    return min(bits(size, sum(counts)), sum(map(bits, tensors, counts))) / 8


def plain(size: int, indices: IndexSet, tensors: Sequence[int] | None) -> Piece:
    """Encode as a bitmap or a list: longer than :func:`encode`, and faster to write and to read."""
    _check(size)
    if len(indices) in (0, size):
        return Piece.positions(b"", 0.0)
    return Piece.positions(_encode_plain(size, indices), bound(size, *by_tensor(size, indices, tensors)))


def encode(size: int, indices: IndexSet, tensors: Sequence[int] | None) -> Piece:
    """Encode the set `indices` of 0 .. size - 1. `tensors` are the lengths of its tensors, if both sides know them."""
    _check(size)
    if len(indices) in (0, size):
        return Piece.positions(b"", 0.0)
    indices = np.require(indices, np.int64, KERNEL)
    counts, known = by_tensor(size, indices, tensors)
    mask = np.zeros(size, np.uint8)
    mask[indices] = 1
    widths, structured = grid.survey(mask, indices, known, counts)
    # the cost of gaps is known beforehand to a few bytes: only the better of the two is coded, if it may win
    head = fingerprint(known) + b"".join(varint(k) for k in counts[:-1])
    whole, split = _gap_bits((size,), (len(indices),)), _gap_bits(known, counts) + 8 * len(head)
    best, room = b"", 1 + (_plain_bits(size, len(indices)) + 7) // 8
    if structured or size <= _ALWAYS:
        best = (
            _encode_grid(mask, known, widths, tensors is not None, min(room, (min(whole, split) + 7) // 8 + 8)) or b""
        )
        room = len(best) or room
    if min(whole, split) + 64 < 8 * room:
        if whole <= split:
            coded = bytes([GAPS]) + gaps.encode(indices, (size,), (len(indices),))
        else:
            coded = bytes([TENSOR_GAPS]) + head + gaps.encode(indices, known, counts)
        best = coded if len(coded) < room else best
    return Piece.positions(best or _encode_plain(size, indices), bound(size, counts, known))


def _check(size: int) -> None:
    if size > MOST:
        raise WireError(f"a vector of {size} entries is too long to send positions of; at most {MOST} are possible")


def by_tensor(size: int, indices: IndexSet, tensors: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the number of positions in each tensor, and the tensors' lengths."""
    if tensors is None:
        return (len(indices),), (size,)
    known = tuple(tensors)
    reached = indices.searchsorted(_ends(known)).tolist()
    return tuple(stop - start for start, stop in pairwise((0, *reached))), known


@lru_cache(maxsize=64)
def _ends(tensors: tuple[int, ...]) -> rans.Ints:
    """Return the end of each tensor."""
    return np.cumsum(tensors)


def decode(reader: Reader, size: int, count: int, tensors: Sequence[int] | None) -> IndexSet:
    """Return the next set of `count` of `size` positions, sorted and distinct. The caller has claimed `size`."""
    if size > MOST:
        raise WireError(f"positions in a vector of {size} entries cannot be; at most {MOST} are possible")
    if count in (0, size):
        return np.arange(count)
    way = reader.byte("the coding of positions")
    if way == BITMAP:
        out = places(reader.array("u1", (size + 7) // 8, "a bitmap"))
        if len(out) and out[-1] >= size:
            raise WireError("a bitmap goes on beyond its end")
    elif way in (LIST, LIST | _ABSENT):
        out = _decode_list(reader, size, count, absent=way != LIST)
    elif way == GAPS:
        out = gaps.decode(reader, (size,), (count,))
    elif way == TENSOR_GAPS:
        known = checked(reader, tensors)
        out = gaps.decode(reader, known, _tensor_counts(reader, known, count))
    elif way in (GRID, GRID | _LAYOUT):
        known = checked(reader, tensors) if way & _LAYOUT else (size,)
        out = _decode_grid(reader, known, count)
    else:
        raise WireError(f"positions are coded in way {way}, which does not exist")
    if len(out) != count:
        coded = "more" if len(out) > count else str(len(out))
        raise WireError(f"{count} positions are announced but {coded} are coded")
    return out


@lru_cache(maxsize=64)
def fingerprint(tensors: tuple[int, ...]) -> bytes:
    """Return two bytes that show whether both sides know the same tensors."""
    return (zlib.crc32(np.array(tensors, "<i8").tobytes()) & 0xFFFF).to_bytes(2, "little")


def checked(reader: Reader, tensors: Sequence[int] | None) -> tuple[int, ...]:
    """Return the receiver's own tensors if they fit the fingerprint that comes next."""
    found = bytes(reader.take(2, "the fingerprint of a layout"))
    if tensors is None or fingerprint(tuple(tensors)) != found:
        raise WireError("positions are coded for a layout that the receiver does not have")
    return tuple(tensors)


def plain_size(size: int, count: int) -> int:
    """Return the number of bytes that :func:`plain` takes."""
    return 1 + (_plain_bits(size, count) + 7) // 8 if 0 < count < size else 0


def _plain_bits(size: int, count: int) -> int:
    """Return the bits of the shorter of two: a bitmap, and a list of the present or absent positions."""
    return min(size, min(count, size - count) * (size - 1).bit_length())


def _encode_plain(size: int, indices: IndexSet) -> bytes:
    if _plain_bits(size, len(indices)) == size:
        return bytes([BITMAP]) + bitmap(size, indices).tobytes()
    absent = size - len(indices) < len(indices)
    listed = _others(size, indices) if absent else indices
    bits = np.unpackbits(listed.astype("<u4").view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    packed = np.packbits(bits[:, : (size - 1).bit_length()], bitorder="little")
    return bytes([LIST | absent * _ABSENT]) + packed.tobytes()


def _decode_list(reader: Reader, size: int, count: int, absent: bool) -> IndexSet:
    width, few = (size - 1).bit_length(), size - count if absent else count
    if few * width >= size:
        raise WireError(f"{count} of {size} positions are listed, where a bitmap is shorter")
    packed = reader.array("u1", (few * width + 7) // 8, "a list of positions")
    bits = np.unpackbits(packed, bitorder="little")
    listed = np.zeros(few, np.int64)
    for i in range(width):
        listed |= bits[i : few * width : width].astype(np.int64) << i
    if bits[few * width :].any() or (np.diff(listed) <= 0).any() or listed[-1] >= size:
        raise WireError(f"listed positions are not sorted, distinct and within 0..{size - 1}")
    return _others(size, listed) if absent else listed


def _others(size: int, indices: IndexSet) -> IndexSet:
    """Return the positions that are not in a set."""
    mask = np.ones(size, np.bool_)
    mask[indices] = False
    return np.flatnonzero(mask)


@lru_cache(maxsize=1024)
def _gap_bits(tensors: tuple[int, ...], counts: tuple[int, ...]) -> int:
    pairs = np.array([(k, n - k) for n, k in zip(tensors, counts, strict=True)], np.int64)
    return sum(rans.entropy(pair) for pair in pairs) >> 12


def _tensor_counts(reader: Reader, tensors: Sequence[int], count: int) -> list[int]:
    counts = [reader.varint("the number of positions in a tensor", most=size) for size in tensors[:-1]]
    counts.append(count - sum(counts))
    if not 0 <= counts[-1] <= tensors[-1]:
        raise WireError(f"the positions in the tensors do not add up to {count}")
    return counts


def _encode_grid(mask: Bytes, tensors: tuple[int, ...], widths: list[int], shared: bool, below: int) -> bytes | None:
    rows_of = b"".join(varint(w) for w, n in zip(widths, tensors, strict=True) if n >= grid.SMALLEST)
    start = bytes([GRID | _LAYOUT]) + fingerprint(tensors) + rows_of if shared else bytes([GRID]) + rows_of
    body = grid.write(mask, _ends(tensors), np.array(widths, np.int64), max(0, below - len(start)))
    out = start + varint(len(body)) + body.tobytes()
    return out if len(body) and len(out) < below else None


def _decode_grid(reader: Reader, tensors: Sequence[int], count: int) -> IndexSet:
    widths = [reader.varint("the length of a row", most=n) if n >= grid.SMALLEST else 1 for n in tensors]
    if any(w == 0 or n % w for w, n in zip(widths, tensors, strict=True)):
        raise WireError("the length of a row does not divide the length of its tensor")
    body = reader.array("u1", reader.varint("the length of a grid", most=reader.remaining), "a grid")
    return grid.read(body, np.cumsum(tensors), np.array(widths, np.int64), count)
