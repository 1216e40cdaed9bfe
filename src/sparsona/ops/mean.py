"""Weighted means of replies."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled
from sparsona.message import Vector


@compiled
def _add(total: npt.NDArray[np.float64], vector: Vector, weight: float) -> None:
    for i in range(len(total)):
        total[i] += weight * np.float64(vector[i])


def weighted_mean(pairs: Iterable[tuple[float, Vector]]) -> Vector:
    """Return the weighted mean of vectors, in one pass, with one vector in memory, summed in float64.

    >>> weighted_mean([(1, np.array([4, 0], np.float32)), (3, np.array([8, 0], np.float32))])
    array([7., 0.], dtype=float32)
    """
    total, weight = None, 0.0
    for w, vector in pairs:
        if total is None:
            total = np.zeros(len(vector), np.float64)
        _add(total, vector, float(w))
        weight += w
    if total is None or weight <= 0:
        raise ValueError("a mean needs at least one vector of positive weight")
    out: Vector = (total / weight).astype(np.float32)
    return out
