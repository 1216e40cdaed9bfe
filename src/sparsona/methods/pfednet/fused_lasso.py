"""The proximal map of total variation along a vector: values that are nearly equal, side by side, become equal.

Johnson, "A dynamic programming algorithm for the fused lasso and L0-segmentation", J. Comp. Graph. Stat. 2013: exact,
in linear time. The derivative of the message from left to right is piecewise linear and non-decreasing; its knots are
kept in a double-ended queue.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled
from sparsona.message import IndexSet

Floats = npt.NDArray[np.floating[Any]]


def fused_lasso(g: Floats, gamma: float, pinned: bool = True, sizes: Sequence[int] | None = None) -> Floats:
    """Return argmin over u of 1/2 |u - g|^2 + gamma * sum |u_i - u_(i+1)|, per tensor of `sizes`.

    `pinned` adds gamma * |u_d|, as if a zero followed: the paper's Lambda. Otherwise the sum of g is kept. Computed in
    float64, returned in the type of `g`; fused entries are equal to the bit, and gamma = 0 returns `g` itself.

    >>> g = np.array([1, 1.2, -0.9, -1.1, 0.1])
    >>> fused_lasso(g, 0.5).round(6), fused_lasso(g, 0.5, pinned=False).round(6)
    (array([ 0.85,  0.85, -0.5 , -0.5 ,  0.  ]), array([ 0.85,  0.85, -0.5 , -0.5 , -0.4 ]))
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


def runs(u: Floats, sizes: Sequence[int] | None = None) -> int:
    """Return the number of runs of equal entries; a tensor's end ends one.

    >>> runs(np.array([1.0, 1.0, 2.0, 1.0])), runs(np.array([1.0, 1.0, 1.0]), sizes=(2, 1))
    (3, 2)
    """
    if not len(u):
        return 0
    new = np.concatenate([[True], u[1:] != u[:-1]])
    if sizes is not None:
        ends: IndexSet = np.cumsum(sizes)
        new[ends[ends < len(u)]] = True
    return int(np.count_nonzero(new))


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
