"""Which entries of a vector are largest: the index sets of every method that sends a part of an update."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled
from sparsona.message import IndexSet, Vector


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
    size = np.abs(vector)
    if count >= len(size):
        return np.flatnonzero(size)
    if count <= 0:
        return np.zeros(0, np.int64)
    least = np.partition(size, len(size) - count)[len(size) - count]
    if least == 0:
        return np.flatnonzero(size)
    return _from(size, least, count)


@compiled
def _from(size: npt.NDArray[Any], least: Any, count: int) -> IndexSet:
    """Where `count` entries are that are not below `least`; of those that equal it, the first."""
    above = 0
    for i in range(len(size)):
        above += size[i] > least
    out, at, equals = np.empty(count + 1, np.int64), 0, count - above
    for i in range(len(size)):
        level = (size[i] == least) & (equals > 0)
        out[at] = i
        at += (size[i] > least) | level
        equals -= level
    return out[:count]


def top_supports(vector: Vector, spans: Iterable[slice], sparsity: float) -> IndexSet:
    """The largest entries of each span of `vector`, a share `sparsity` of every span being left out.

    >>> top_supports(np.array([1, 2, 3, 40, 50, 60], np.float32), [slice(0, 3), slice(3, 6)], 0.7)
    array([2, 5])
    """
    found = [span.start + topk_support(vector[span], kept(span.stop - span.start, sparsity)) for span in spans]
    return np.concatenate(found) if found else np.zeros(0, np.int64)
