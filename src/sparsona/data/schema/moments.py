"""Means and deviations combined over owners: each sends three numbers per column, never a row."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from sparsona.data.dataset import Array

Doubles = npt.NDArray[np.float64]

ROUNDING = 1e-12
"""A deviation below this fraction of its mean may be rounding of a constant."""


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Per column: the number of known values, their mean, and the sum of squared deviations."""

    count: npt.NDArray[np.int64]
    mean: Doubles
    squares: Doubles

    def spread(self) -> Doubles:
        """Return the standard deviation per column; 0 for a constant or an unknown one."""
        return np.sqrt(self.squares / np.maximum(self.count, 1))

    def deviation(self) -> Doubles:
        """Return the standard deviation per column; 1 if it is 0 or within rounding errors.

        >>> moments(np.array([[0.1, 1.7e9], [0.1, 1.7e9 + 2], [0.1, 1.7e9 + 4]])).deviation().round(3).tolist()
        [1.0, 1.633]
        """
        std = self.spread()
        return np.where(std > ROUNDING * np.abs(self.mean), std, 1.0)


def moments(values: Array) -> ColumnMoments:
    """Return the moments of the columns of a matrix; NaN is unknown.

    >>> found = moments(np.array([[1.0, 5.0], [3.0, np.nan]]))
    >>> found.count.tolist(), found.mean.tolist(), found.squares.tolist()
    ([2, 1], [2.0, 5.0], [2.0, 0.0])
    """
    wide = values.astype(np.float64)
    known = ~np.isnan(wide)
    count = known.sum(axis=0)
    mean = np.where(known, wide, 0).sum(axis=0) / np.maximum(count, 1)
    return ColumnMoments(count, mean, np.where(known, (wide - mean) ** 2, 0).sum(axis=0))


def pooled(several: Iterable[ColumnMoments]) -> ColumnMoments:
    """Return the moments of all rows together, as if they were in one place (Chan, Golub, LeVeque 1979).

    >>> whole = pooled([moments(np.array([[1.0], [2.0]])), moments(np.array([[6.0]]))])
    >>> whole.mean.tolist(), whole.squares.tolist()
    ([3.0], [14.0])
    """
    return reduce(_both, several)


def _both(a: ColumnMoments, b: ColumnMoments) -> ColumnMoments:
    count = a.count + b.count
    share = b.count / np.maximum(count, 1)
    gap = b.mean - a.mean
    mean = np.where(a.count == 0, b.mean, a.mean + gap * share)
    return ColumnMoments(count, mean, a.squares + b.squares + gap * gap * a.count * share)
