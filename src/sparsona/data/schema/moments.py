"""Means and deviations combined over owners: each sends three numbers per column, never a row.

All owners' inputs are scaled by the agreed mean and deviation. One owner with wrong numbers, by malice or in another
unit, would make all owners' columns constant, so implausible statistics are refused. Honest, different owners pass: on
heart-disease, on Covertype by area and on MNIST with one class per owner they stay below half of each bound.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from sparsona.data.dataset import Array
from sparsona.errors import DataError

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
    """Return the moments of all rows together, as if they were in one place (Chan, Golub, LeVeque 1979)."""
    return reduce(_both, several)


def _both(a: ColumnMoments, b: ColumnMoments) -> ColumnMoments:
    count = a.count + b.count
    share = b.count / np.maximum(count, 1)
    gap = b.mean - a.mean
    mean = np.where(a.count == 0, b.mean, a.mean + gap * share)
    return ColumnMoments(count, mean, a.squares + b.squares + gap * gap * a.count * share)


FAR = 100.0
"""Limit for an owner's mean and deviation, in units of the farthest that one value of the others can lie from their
mean."""

MOVED = 10.0
"""Limit in half of the columns: the factor of change of the agreed deviation, and the mean's move in deviations."""

FEWEST = 20
"""Fewest known values of the others by which a column is judged; fewer are chance."""


def refuse_implausible(told: Mapping[str, ColumnMoments], columns: Sequence[str]) -> None:
    """Refuse an owner, named by its key, whose statistics disagree grossly with all others'.

    A column is judged if the others know 20 values that are not all the same. With two owners it is unknown which one
    is wrong, so only `FAR` is checked.

    >>> ages = ColumnMoments(np.array([50]), np.array([40.0]), np.array([5000.0]))
    >>> refuse_implausible({"a": ages, "b": ages, "c": ages}, ["age"])
    """
    several = list(told.values())
    if len(several) < 2:
        return
    whole, before = pooled(several), _nothing(several[0])
    after = _pooled_after(several)
    found: list[tuple[float, str]] = []
    for owner, mine in told.items():
        others, before = pooled([before, after.pop()]), pooled([before, mine])
        judged = (others.count >= FEWEST) & (mine.count > 0) & (others.spread() > ROUNDING * np.abs(others.mean))
        far, moved = _farness(mine, others, judged), _movement(whole, others, judged)
        if (far > FAR).any() or (len(several) > 2 and 2 * (moved > MOVED).sum() > judged.sum()):
            k = int(far.argmax())
            found.append((float(far[k]), _line(owner, columns[k], mine, others, k)))
    if found:  # where one owner is far off, those beside it may look so, too: the farthest is named
        raise DataError(max(found)[1])


def _nothing(like: ColumnMoments) -> ColumnMoments:
    return ColumnMoments(np.zeros_like(like.count), np.zeros_like(like.mean), np.zeros_like(like.squares))


def _pooled_after(several: Sequence[ColumnMoments]) -> list[ColumnMoments]:
    """Yield the pooled moments of all owners after each one, for the last owner first.

    They are not subtracted from the total, because rounding beside one owner's huge numbers would erase the others'.
    """
    found = [_nothing(several[0])]
    for one in several[:0:-1]:
        found.append(pooled([found[-1], one]))
    return found


def _farness(mine: ColumnMoments, others: ColumnMoments, judged: Array) -> Array:
    """Return the distance of an owner's mean and deviation, in units of the others' farthest possible value.

    That value is at most the root of the sum of their squares away from their mean.
    """
    reach = np.where(judged, np.sqrt(others.squares), 1.0)
    return np.where(judged, np.maximum(np.abs(mine.mean - others.mean), mine.spread()) / reach, 0.0)


def _movement(whole: ColumnMoments, others: ColumnMoments, judged: Array) -> Array:
    """Return the factor by which an owner changes the deviation, or the deviations by which it moves the mean."""
    with_it, without = whole.spread(), np.where(judged, others.spread(), 1.0)
    shrunk = without / np.maximum(with_it, np.finfo(np.float64).tiny)
    shift = np.abs(whole.mean - others.mean) / without
    return np.where(judged, np.maximum.reduce([with_it / without, shrunk, shift]), 0.0)


def _line(owner: str, column: str, mine: ColumnMoments, others: ColumnMoments, k: int) -> str:
    def said(of: ColumnMoments) -> str:
        return f"mean {of.mean[k]:.3g}, deviation {of.spread()[k]:.3g}"

    return (
        f"{owner} disagrees grossly with the others, as in {column!r} ({said(mine)}; the others: {said(others)}): "
        "give all the same unit, correct its rows, leave it out, or pass --scaling own"
    )
