"""Element-wise aggregation: the mean of sparse vectors at each position, over those who sent that position."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sparsona.message import Sparse, Vector
from sparsona.ops.compiled import Places, compiled

Sums = npt.NDArray[np.float64]


def elementwise_mean(size: int, replies: Iterable[tuple[float, Sparse]], absent: bool = False) -> Vector:
    """The mean by weights at each position; 0 where nobody sent one. With `absent`, who sent nothing counts as zero.

    One pass with one sparse vector in memory; sums are in float64. A value that is sent counts even if it is 0.

    >>> sparse = [Sparse(2, np.array([i]), np.array([v], np.float32)) for i, v in ((1, 1), (0, 2), (1, 3))]
    >>> elementwise_mean(2, [(1, s) for s in sparse])
    array([2., 2.], dtype=float32)
    >>> elementwise_mean(2, [(1, s) for s in sparse], absent=True)
    array([0.6666667, 1.3333334], dtype=float32)
    """
    sums = np.zeros(2 * size)  # value and weight side by side: one position is one place in memory
    everyone = 0.0
    for share, sparse in replies:
        _fold(sums, sparse.indices.view(np.uint64), sparse.values, share)
        everyone += share
    total, weight = sums[::2], sums[1::2]
    if absent:
        weight[:] = everyone
    return np.divide(total, weight, out=np.zeros(size, np.float32), where=weight > 0, casting="same_kind")


@compiled
def _fold(sums: Sums, places: Places, values: Vector, share: float) -> None:
    two, one = np.uint64(2), np.uint64(1)
    for j in range(len(places)):
        sums[two * places[j]] += share * np.float64(values[j])
        sums[two * places[j] + one] += share
