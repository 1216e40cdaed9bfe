"""Fuse an update's entries into equal runs and round them to few levels, so that it takes few bits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sparsona.errors import Diverged
from sparsona.message import Levels, Vector
from sparsona.methods.pfednet.fused_lasso import fused_lasso
from sparsona.training.local import Local


def to_levels(values: Vector, levels: int, sizes: Sequence[int] | None = None) -> Vector:
    """Replace each value by the nearest of at most `levels` means, per tensor if `sizes` are given.

    Lloyd's algorithm with at most 50 iterations; an unused mean is dropped. Equal values stay equal, so runs do not
    break.

    >>> to_levels(np.array([0, 1, 10, 11, 12], np.float32), 2)
    array([ 0.5,  0.5, 11. , 11. , 11. ], dtype=float32)
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
    """Return P_gamma(g) by tensor, rounded to `levels` per tensor (0: not).

    >>> clustered(np.array([1, 1.2, -0.9, -1.1, 0.1], np.float32), (5,), 0.5, levels=2).values
    array([ 0.85      ,  0.85      , -0.33333334, -0.33333334, -0.33333334],
          dtype=float32)
    """
    if not np.isfinite(g).all():
        raise Diverged("an update is not finite: lower the learning rate (lr, or eta), or set clip")
    u = fused_lasso(g, gamma, pinned, sizes)
    return Levels(tuple(sizes), to_levels(u, levels, sizes) if levels else u)


def step_of(y: Vector, local: Local, eta: float, rate: float | None) -> tuple[Vector, Vector]:
    """Return a client's model after its turn from `y`, and the direction g: the model is y - `eta` * g.

    With a learning `rate` it trains by its config; without, it takes one step along the gradient of one batch.
    """
    if rate is None:
        g = local.gradient(y, local.config.batch)
        return y - np.float32(eta) * g, g
    trained = local.train(y, replace(local.config, lr=rate)).weights
    return trained, (y - trained) / np.float32(eta)


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
