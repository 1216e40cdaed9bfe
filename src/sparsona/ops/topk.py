"""The largest entries of a vector: the index sets of all methods that send a part of an update."""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from math import floor

import numpy as np
import numpy.typing as npt

from sparsona.compiled import KERNEL, compiled, i64, u32, u64
from sparsona.message import IndexSet, Vector

Magnitudes = npt.NDArray[np.uint32]
"""The 31 bits of a float32 without its sign, which sort like the magnitudes."""

Ints = npt.NDArray[np.int64]

_MAGNITUDE = np.uint32(2**31 - 1)


@lru_cache(maxsize=1024)
def kept(size: int, sparsity: float) -> int:
    """Return how many of `size` entries stay when a share `sparsity` of them, rounded half up, is removed.

    At least one stays unless `sparsity` is 1, because a bias of one entry would otherwise never be sent.

    >>> kept(10, 0.9), kept(1, 0.9), kept(25, 0.9), kept(10, 1.0)
    (1, 1, 2, 0)
    """
    count = size - floor(Fraction(str(sparsity)) * size + Fraction(1, 2))
    return max(1, count) if sparsity < 1 else count


def topk_support(vector: Vector, count: int) -> IndexSet:
    """Return the positions of the `count` largest magnitudes; of equals the first. Zeros never count.

    >>> topk_support(np.array([1, -3, 0, 3, 3], np.float32), 2)
    array([1, 3])
    >>> topk_support(np.array([0, 5, 0], np.float32), 2)
    array([1])
    """
    return _largest_of(vector, [0, len(vector), count])


def top_supports(vector: Vector, spans: Iterable[slice], sparsity: float) -> IndexSet:
    """Return the positions of the largest entries per span, without a share `sparsity` of each span.

    >>> top_supports(np.array([1, 2, 3, 40, 50, 60], np.float32), [slice(0, 3), slice(3, 6)], 0.7)
    array([2, 5])
    """
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
