"""Element-wise aggregation: the mean of sparse vectors at each position, over the clients that sent it."""

from collections.abc import Iterable
from itertools import islice

import numpy as np
import numpy.typing as npt

from sparsona.compiled import Places, compiled
from sparsona.message import Sparse, Vector

Sums = npt.NDArray[np.float64]

TOGETHER, BLOCK = 8, 1024
"""Number of replies that are folded in together, and positions per block."""

NOTHING = Sparse(0, np.zeros(0, np.int64), np.zeros(0, np.float32))


def elementwise_mean(size: int, replies: Iterable[tuple[float, Sparse]], absent: bool = False) -> Vector:
    """Return the weighted mean at each position; 0 if no client sent it. With `absent`, missing values count as 0.

    One pass with a few sparse vectors in memory; sums are in float64, in the order of the replies. A sent 0 counts.

    >>> sparse = [Sparse(2, np.array([i]), np.array([v], np.float32)) for i, v in ((1, 1), (0, 2), (1, 3))]
    >>> elementwise_mean(2, [(1, s) for s in sparse])
    array([2., 2.], dtype=float32)
    >>> elementwise_mean(2, [(1, s) for s in sparse], absent=True)
    array([0.6666667, 1.3333334], dtype=float32)
    """
    sums = np.zeros(2 * size)  # value and weight side by side: one position is one place in memory
    everyone = 0.0
    waiting = iter(replies)
    while several := list(islice(waiting, TOGETHER)):
        everyone = sum((share for share, _ in several), everyone)
        several += [(0.0, NOTHING)] * (TOGETHER - len(several))
        places = tuple(sparse.indices.view(np.uint64) for _, sparse in several)
        _fold(sums, places, tuple(sparse.values for _, sparse in several), tuple(float(share) for share, _ in several))
    return _divide(sums, everyone if absent else 0.0)


@compiled
def _fold(sums: Sums, places: tuple[Places, ...], values: tuple[Vector, ...], shares: tuple[float, ...]) -> None:
    """Add replies block by block of positions, so that a block stays in the cache."""
    two, one = np.uint64(2), np.uint64(1)
    at = np.zeros(len(places), np.int64)
    for stop in range(BLOCK, len(sums) // 2 + BLOCK, BLOCK):
        for r in range(len(places)):
            place, value, share, j = places[r], values[r], shares[r], at[r]
            while j < len(place) and place[j] < np.uint64(stop):
                sums[two * place[j]] += share * np.float64(value[j])
                sums[two * place[j] + one] += share
                j += 1
            at[r] = j


@compiled
def _divide(sums: Sums, everyone: float) -> Vector:
    out = np.zeros(len(sums) // 2, np.float32)
    for i in range(len(out)):
        weight = everyone if everyone > 0 else sums[2 * i + 1]
        if weight > 0:
            out[i] = sums[2 * i] / weight
    return out
