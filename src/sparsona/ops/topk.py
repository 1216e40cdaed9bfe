"""Which entries of a vector are largest: the index sets of every method that sends a part of an update."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from math import floor

import numpy as np
import numpy.typing as npt

from sparsona.compiled import KERNEL, compiled, u32, u64
from sparsona.message import IndexSet, Vector

Magnitudes = npt.NDArray[np.uint32]
"""Numbers of 31 bits: the bits of a float32 without its sign, which are in the order of the magnitudes."""

Ints = npt.NDArray[np.int64]

_MAGNITUDE = np.uint32(2**31 - 1)


@lru_cache(maxsize=1024)
def kept(size: int, sparsity: float) -> int:
    """How many of `size` entries stay when a share `sparsity` of them, rounded half up, is removed.

    At least one stays unless all are to go: a bias of one entry would otherwise never be sent.

    >>> kept(10, 0.9), kept(1, 0.9), kept(25, 0.9), kept(10, 1.0)
    (1, 1, 2, 0)
    """
    count = size - floor(Fraction(str(sparsity)) * size + Fraction(1, 2))
    return max(1, count) if sparsity < 1 else count


def topk_support(vector: Vector, count: int) -> IndexSet:
    """Where the `count` entries of largest magnitude stand; of equals the first. Zeros are never among them.

    >>> topk_support(np.array([1, -3, 0, 3, 3], np.float32), 2)
    array([1, 3])
    >>> topk_support(np.array([0, 5, 0], np.float32), 2)
    array([1])
    """
    return _largest_of(vector, [0, len(vector), count])


def top_supports(vector: Vector, spans: Iterable[slice], sparsity: float) -> IndexSet:
    """The largest entries of each span of `vector`, a share `sparsity` of every span being left out.

    >>> top_supports(np.array([1, 2, 3, 40, 50, 60], np.float32), [slice(0, 3), slice(3, 6)], 0.7)
    array([2, 5])
    """
    return _largest_of(vector, [n for s in spans for n in (s.start, s.stop, kept(s.stop - s.start, sparsity))])


def _largest_of(vector: Vector, spans: list[int]) -> IndexSet:
    """The largest entries of spans, of which the start, the end and how many are wanted follow each other."""
    return _largest(np.require(vector, np.float32, KERNEL).view(np.uint32), np.array(spans, np.int64).reshape(-1, 3))


@compiled
def _largest(bits: Magnitudes, spans: Ints) -> IndexSet:
    out, at = np.empty(spans[:, 2].sum() + 1, np.int64), 0
    magnitudes = bits & _MAGNITUDE
    for start, stop, count in spans:
        at = take_largest(magnitudes, start, stop, count, out, at)
    return out[:at]


@compiled
def take_largest(magnitudes: Magnitudes, start: int, stop: int, count: int, out: IndexSet, at: int) -> int:
    """Where the `count` largest of magnitudes[start:stop] stand, into `out` from `at` on; where these end.

    Of equals the first are taken, and zeros never. `out` has room for one more.
    """
    least, equals = _least(magnitudes, start, stop, count)
    for i in range(start, stop):
        level = (magnitudes[u64(i)] == least) & (equals > 0)
        out[u64(at)] = i
        at += (magnitudes[u64(i)] > least) | level
        equals -= level
    return at


@compiled
def _least(magnitudes: Magnitudes, start: int, stop: int, count: int) -> tuple[int, int]:
    """The smallest of the `count` largest magnitudes, and how many of its equals are among them; if that is zero, none.

    The bits are found from the top ten or eleven at a time, by counting how often each pattern occurs: unlike a
    partition, this never has to guess.
    """
    if count <= 0:
        return _MAGNITUDE, 0
    if count >= stop - start:
        return u32(0), 0
    found, left, here, inside = u32(0), count, magnitudes[start:stop], 0
    candidates = here
    for shift in (20, 10, 0):
        counts = np.zeros(2048, np.int64)
        for magnitude in here:
            counts[u64(magnitude >> u32(shift) & u32(2047 if shift == 20 else 1023))] += 1
        pattern = 2047
        while counts[pattern] < left:
            left -= counts[pattern]
            pattern -= 1
        found |= u32(pattern << shift)
        if shift:
            candidates, inside = np.empty(counts[pattern] + 1, np.uint32), 0
            for magnitude in here:
                candidates[u64(inside)] = magnitude
                inside += magnitude >> u32(shift) == found >> u32(shift)
            here = candidates[:inside]
    return found, left if found else 0
