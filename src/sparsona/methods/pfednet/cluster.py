"""Fuse an update's entries into equal runs and round them to few levels, so that it takes few bits.

The fused lasso is Johnson's, "A dynamic programming algorithm for the fused lasso and L0-segmentation", J. Comp. Graph.
Stat. 2013: exact, in linear time. The derivative of the message from left to right is piecewise linear and
non-decreasing; its knots are kept in a double-ended queue.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled
from sparsona.errors import Diverged
from sparsona.message import Levels, Vector

Floats: TypeAlias = npt.NDArray[np.floating[Any]]


def to_levels(values: Vector, levels: int, sizes: Sequence[int] | None = None) -> Vector:
    """Replace each value by the nearest of at most `levels` means, per tensor if `sizes` are given.

    Lloyd's algorithm with at most 50 iterations; an unused mean is dropped. Equal values stay equal, so runs do not
    break.
    """
    if sizes is not None:
        parts = np.split(values, np.cumsum(sizes)[:-1]) if len(sizes) else [values]
        return np.concatenate([to_levels(part, levels) for part in parts])
    distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) <= levels:
        return values
    points = distinct.astype(np.float64)
    weight, total = np.concatenate([[0], np.cumsum(counts)]), np.concatenate([[0.0], np.cumsum(counts * points)])
    means = _spread(points, counts, levels)
    ends = np.zeros(0, np.int64)
    for _ in range(50):
        before, ends = ends, np.searchsorted(points, (means[1:] + means[:-1]) / 2)
        bounds = np.unique(np.concatenate([[0], ends, [len(points)]]))
        means = np.diff(total[bounds]) / np.diff(weight[bounds])
        if np.array_equal(before, ends):
            break
    cells = np.searchsorted((means[1:] + means[:-1]) / 2, points, side="right")
    out: Vector = means.astype(np.float32)[cells][inverse]
    return out


def _spread(points: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], levels: int) -> npt.NDArray[np.float64]:
    """Return the initial means, as dense as the cube root of the numbers' density (Panter and Dite 1951).

    This is best for many levels. From the quantiles, Lloyd's algorithm ends with most levels where the numbers crowd:
    twice the error with 32 levels, and more bytes, because all levels are then about equally frequent.
    """
    between = (counts[1:] + counts[:-1]) / 2
    mass = np.concatenate([[0.0], np.cumsum(np.cbrt(between * np.square(np.diff(points))))])
    found: npt.NDArray[np.float64] = np.interp((np.arange(levels) + 0.5) / levels * mass[-1], mass, points)
    return np.unique(found)


def clustered(g: Vector, sizes: Sequence[int], gamma: float, pinned: bool = True, levels: int = 0) -> Levels:
    """Return P_gamma(g) by tensor, rounded to `levels` per tensor (0: not)."""
    if not np.isfinite(g).all():
        raise Diverged("an update is not finite: lower the learning rate (lr, or eta), or set clip")
    u = fused_lasso(g, gamma, pinned, sizes)
    return Levels(tuple(sizes), to_levels(u, levels, sizes) if levels else u)


def typical(g: Vector) -> float:
    """Return median |g| * sqrt(d) over the non-zero entries: a gamma of this size fuses much of any gradient.

    Zeros are left out, because inputs that are mostly zero, such as categories, have such gradients, too.

    >>> typical(np.array([1, 0, -2, 0, 0, 3, 0, 0, 2], np.float32))
    4.0
    """
    sizes = np.abs(g[g != 0])
    return float(np.median(sizes) * np.sqrt(len(sizes))) if len(sizes) else 0.0


def slowed(decay: str, round: int) -> float:
    """Return 1/sqrt(t) if `decay` is "sqrt", else 1; t counts from 1, `round` from 0.

    >>> slowed("sqrt", 3), slowed("none", 3)
    (0.5, 1.0)
    """
    return (round + 1) ** -0.5 if decay == "sqrt" else 1.0


def fused_lasso(g: Floats, gamma: float, pinned: bool = True, sizes: Sequence[int] | None = None) -> Floats:
    """Return argmin over u of 1/2 |u - g|^2 + gamma * sum |u_i - u_(i+1)|, per tensor of `sizes`.

    `pinned` adds gamma * |u_d|, as if a zero followed: the paper's Lambda. Otherwise the sum of g is kept. Computed in
    float64, returned in the type of `g`; fused entries are equal to the bit, and gamma = 0 returns `g` itself.
    """
    if gamma == 0 or not len(g):
        return g
    out = np.empty_like(g)
    start = 0
    for size in sizes if sizes is not None else (len(g),):
        if size:
            _johnson(g[start : start + size], out[start : start + size], float(gamma), pinned)
        start += size
    return out


@compiled
def _johnson(g: Floats, u: Floats, gamma: float, pinned: bool) -> None:
    n = len(g)
    last = n if pinned else n - 1
    # the derivative of the message is slope * x + shift, and gains (slopes[j], shifts[j]) behind the knot at knots[j]
    knots, slopes, shifts = np.empty(2 * n + 2), np.empty(2 * n + 2), np.empty(2 * n + 2)
    lows, highs = np.empty(last), np.empty(last)
    left, right = n + 1, n
    shift_in = shift_out = -np.float64(g[0])  # of the first and of the last piece, whose slope is 1
    for i in range(last):
        slope, shift = 1.0, shift_in
        while left <= right and slope * knots[left] + shift <= -gamma:
            slope += slopes[left]
            shift += shifts[left]
            left += 1
        low = (-gamma - shift) / slope
        slope_at, shift_at = 1.0, shift_out
        while left <= right and slope_at * knots[right] + shift_at >= gamma:
            slope_at -= slopes[right]
            shift_at -= shifts[right]
            right -= 1
        high = (gamma - shift_at) / slope_at
        lows[i], highs[i] = low, high
        left -= 1
        right += 1
        knots[left], slopes[left], shifts[left] = low, slope, shift + gamma
        knots[right], slopes[right], shifts[right] = high, -slope_at, gamma - shift_at
        if i + 1 < n:
            shift_in, shift_out = -gamma - np.float64(g[i + 1]), gamma - np.float64(g[i + 1])
    x = 0.0
    if not pinned:
        slope, shift = 1.0, shift_in
        while left <= right and slope * knots[left] + shift <= 0.0:
            slope += slopes[left]
            shift += shifts[left]
            left += 1
        x = -shift / slope
        u[n - 1] = x
    for i in range(last - 1, -1, -1):
        x = min(max(x, lows[i]), highs[i])
        u[i] = x
