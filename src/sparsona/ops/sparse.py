"""Sparse updates: the largest entries of a vector, their values rounded, what is left, and how they are stored.

Values are rounded to few different ones, of a few bits each; error feedback keeps the difference.

- `pow2`: the nearest power of two, sign kept. It needs no scale, and the error is at most a third of the value.
- `levels:N`: each tensor's magnitudes are sorted into N groups of the same size, and each becomes its group's mean.
- `ternary`: one magnitude per tensor, their mean; this is `levels:1`, as in sparse ternary compression.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from sparsona.bits import bitmap, places
from sparsona.compiled import KERNEL, compiled, i64, u32, u64
from sparsona.message import IndexSet, Sparse, Vector

Magnitudes = npt.NDArray[np.uint32]
"""The 31 bits of a float32 without its sign, which sort like the magnitudes."""

Ints = npt.NDArray[np.int64]

_MAGNITUDE = np.uint32(2**31 - 1)

Values: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^(float32|pow2|ternary|levels:[1-9][0-9]?)$",
        description="rounding of an update's values: float32 (none), pow2, levels:N or ternary",
    ),
]

MANTISSA, HALF, LARGEST = np.uint32(0x7FFFFF), np.uint32(0x400000), np.uint32(0x7F000000)


@lru_cache(maxsize=1024)
def kept(size: int, sparsity: float) -> int:
    """Return how many of `size` entries stay when a share `sparsity` of them, rounded half up, is removed.

    At least one stays unless `sparsity` is 1, because a bias of one entry would otherwise never be sent.
    """
    count = size - floor(Fraction(str(sparsity)) * size + Fraction(1, 2))
    return max(1, count) if sparsity < 1 else count


def topk_support(vector: Vector, count: int) -> IndexSet:
    """Return the positions of the `count` largest magnitudes; of equals the first. Zeros never count."""
    return _largest_of(vector, [0, len(vector), count])


def top_supports(vector: Vector, spans: Iterable[slice], sparsity: float) -> IndexSet:
    """Return the positions of the largest entries per span, without a share `sparsity` of each span."""
    return _largest_of(vector, [n for s in spans for n in (s.start, s.stop, kept(s.stop - s.start, sparsity))])


def _largest_of(vector: Vector, spans: list[int]) -> IndexSet:
    """Return the largest entries of `spans`, a flat list of start, end and count."""
    return _largest(np.require(vector, np.float32, KERNEL).view(np.uint32), np.array(spans, np.int64).reshape(-1, 3))


@compiled
def _largest(bits: Magnitudes, spans: Ints) -> IndexSet:
    out, at = np.empty(spans[:, 2].sum() + 1, np.int64), 0
    for start, stop, count in spans:
        at = take_largest(bits, start, stop, count, out, at)
    return out[:at]


@compiled
def take_largest(bits: Magnitudes, start: int, stop: int, count: int, out: IndexSet, at: int) -> int:
    """Write the positions of the `count` largest of bits[start:stop] into `out` from `at` on; return their end.

    Of equals the first are taken, zeros never. `out` has room for one more.
    """
    least, equals, all_equals = _least(bits[start:stop], count)
    if equals == all_equals:
        for i in range(start, stop):
            out[u64(at)] = i
            at += (bits[u64(i)] & _MAGNITUDE) >= least
        return at
    for i in range(start, stop):
        magnitude = bits[u64(i)] & _MAGNITUDE
        level = (magnitude == least) & (equals > 0)
        out[u64(at)] = i
        at += (magnitude > least) | level
        equals -= level
    return at


@compiled
def _least(bits: Magnitudes, count: int) -> tuple[int, int, int]:
    """Return the smallest of the `count` largest magnitudes (at least 1), how many equals are taken, and their number.

    A radix selection from the top, ten or eleven bits at a time: unlike quickselect it needs no pivot.
    """
    if count <= 0:
        return u32(_MAGNITUDE), 0, -1
    if count >= len(bits):
        return u32(1), 0, 0
    found, left, here, equals = u32(0), count, bits, 0
    for shift, width in ((20, 2047), (10, 1023), (0, 1023)):
        counts = np.zeros((2, 2048), np.uint32)  # two, since a machine is slow to add to the same number twice in a row
        for i in range(len(here)):
            counts[u64(i & 1), u64(here[u64(i)] >> u32(shift) & u32(width))] += u32(1)
        pattern = width
        while counts[0, pattern] + counts[1, pattern] < left:
            left -= i64(counts[0, pattern] + counts[1, pattern])
            pattern -= 1
        found |= u32(pattern << shift)
        equals = i64(counts[0, pattern] + counts[1, pattern])
        if shift:
            inside, at = np.empty(equals + 1, np.uint32), u64(0)
            for pattern in here:
                inside[at] = pattern
                at += u64((pattern & _MAGNITUDE) >> u32(shift) == found >> u32(shift))
            here = inside[:equals]
    return (found, left, equals) if found else (u32(1), 0, 0)


def rounded(update: Sparse, sizes: Sequence[int], values: str) -> Sparse:
    """Return the update with rounded values; `sizes` are the lengths of the tensors.

    >>> update = Sparse(6, [0, 1, 3, 4], [1, -1.4, 3, 5])
    >>> rounded(update, (3, 3), "pow2").values, rounded(update, (3, 3), "ternary").values
    (array([ 1., -1.,  4.,  4.], dtype=float32), array([ 1.2, -1.2,  4. ,  4. ], dtype=float32))
    """
    if values == "float32" or not len(update.values):
        return update
    if values == "pow2":
        return replace(update, values=powers_of_two(update.values))
    count = 1 if values == "ternary" else int(values.removeprefix("levels:"))
    cuts = np.searchsorted(update.indices, np.cumsum(sizes)[:-1])
    return replace(update, values=np.concatenate([levels(part, count) for part in np.split(update.values, cuts)]))


def powers_of_two(values: Vector) -> Vector:
    """Round each value to the nearest power of two with its sign; ties go up, and 0 stays 0."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    sign, magnitude = bits & np.uint32(1 << 31), bits & np.uint32((1 << 31) - 1)
    near = np.minimum(magnitude + HALF & ~MANTISSA, LARGEST)
    out: Vector = np.where(near, sign | near, np.uint32(0)).view(np.float32)
    return out


def levels(values: Vector, count: int) -> Vector:
    """Round values to `count` magnitudes: each of `count` groups of equal size gets its mean."""
    out, order = np.empty_like(values), np.argsort(np.abs(values), kind="stable")
    for group in np.array_split(order, min(count, max(1, len(values)))):
        mean = np.abs(values[group]).mean(dtype=np.float64) if len(group) else 0.0
        out[group] = np.copysign(np.float32(mean), values[group])
    return out


@dataclass(frozen=True, eq=False)
class Packed:
    """A packed sparse vector, as a server keeps it per client, or a client of its past uploads."""

    size: int
    bits: npt.NDArray[np.uint8]
    values: Vector

    @classmethod
    def of(cls, sparse: Sparse) -> Packed:
        """Pack a sparse vector."""
        return cls(sparse.size, bitmap(sparse.size, sparse.indices), sparse.values)

    def sparse(self) -> Sparse:
        """Unpack the sparse vector."""
        return Sparse.of_sorted(self.size, places(self.bits), self.values)

    def plus(self, other: Packed) -> Packed:
        """Return the sum, on the positions of both."""
        return Packed.of(add(self.sparse(), other.sparse()))

    def added_to(self, vector: Vector) -> Vector:
        """Return `vector` plus these entries, as a new vector."""
        return with_added(vector, self.sparse())


def with_added(vector: Vector, update: Sparse) -> Vector:
    """Return `vector` plus an update, as a new vector."""
    out = vector.copy()
    out[update.indices] += update.values
    return out


def without(vector: Vector, sent: Sparse) -> Vector:
    """Return `vector` minus the `sent` entries: the residual of error feedback."""
    out = vector.copy()
    out[sent.indices] -= sent.values
    return out


def add(one: Sparse, other: Sparse) -> Sparse:
    """Return the sum, on the positions of both."""
    indices = np.union1d(one.indices, other.indices)
    values = np.zeros(len(indices), np.float32)
    values[np.searchsorted(indices, one.indices)] = one.values
    values[np.searchsorted(indices, other.indices)] += other.values
    return Sparse(one.size, indices, values)
