"""Means of clients' vectors that a minority of bad ones cannot move at will.

- `median` and `trimmed`: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
  Statistical Rates", ICML 2018. Both work coordinate by coordinate.
- `krum`: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
  Descent", NeurIPS 2017.

They count every client once, whatever number of examples it claims, and hold all vectors at a time: n x d numbers where
the weighted mean holds d. Median and trimmed mean sort n numbers a coordinate. Krum takes n (n - 1) / 2 distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from sparsona.message import Vector
from sparsona.ops.mean import weighted_mean

PATTERN = r"^(mean|median|krum|trimmed:0?\.[0-4][0-9]*)$"
MergeRule: TypeAlias = Annotated[
    str,
    Field(
        pattern=PATTERN,
        description="how replies are combined: mean (by examples), median, trimmed:SHARE or krum",
    ),
]
"""The rules that :func:`merged` knows."""

CHUNK = 2**16
"""Coordinates that are sorted at a time."""

Matrix = npt.NDArray[np.float32]


def merged(rule: MergeRule, pairs: Iterable[tuple[float, Vector]]) -> Vector:
    """One vector of many by a rule: ``mean`` (by their weights), ``median``, ``trimmed:SHARE`` or ``krum``.

    >>> honest = [(1, np.array([1, 2], np.float32)), (1, np.array([3, 2], np.float32))]
    >>> bad = (1, np.array([1000, -1000], np.float32))
    >>> merged("median", [*honest, bad])
    array([3., 2.], dtype=float32)
    """
    if rule == "mean":
        return weighted_mean(pairs)
    vectors = np.stack([vector for _, vector in pairs])
    if rule == "median":
        return median(vectors)
    return krum(vectors) if rule == "krum" else trimmed_mean(vectors, float(rule.removeprefix("trimmed:")))


def median(vectors: Matrix) -> Vector:
    """The median of each coordinate; of an even number the mean of the middle two."""
    return _by_coordinates(vectors, lambda part: np.median(part, axis=0))


def trimmed_mean(vectors: Matrix, share: float) -> Vector:
    """The mean of each coordinate without the `share` of largest and the `share` of smallest values.

    >>> trimmed_mean(np.array([[0], [1], [2], [3], [1000]], np.float32), 0.2)
    array([2.], dtype=float32)

    At least one value of each coordinate is left.
    """
    cut = min(int(share * len(vectors) + 1e-9), (len(vectors) - 1) // 2)

    def inner(part: Matrix) -> npt.NDArray[np.float64]:
        kept = np.sort(part, axis=0)[cut : len(part) - cut]
        means: npt.NDArray[np.float64] = kept.mean(axis=0, dtype=np.float64)
        return means

    return _by_coordinates(vectors, inner)


def krum(vectors: Matrix) -> Vector:
    """The vector that is nearest to its neighbours: of least summed squared distance to its n - f - 2 nearest ones.

    f is the number of bad vectors against which the rule is proven, the largest with n >= 2 f + 3.
    """
    count = len(vectors)
    near = max(1, count - max(0, (count - 3) // 2) - 2)
    squared = distances(vectors)
    np.fill_diagonal(squared, np.inf)
    scores = np.sort(squared, axis=1)[:, :near].sum(axis=1)
    chosen: Vector = vectors[int(np.argmin(scores))].copy()
    return chosen


def distances(vectors: Sequence[Vector] | Matrix) -> npt.NDArray[np.float64]:
    """The squared Euclidean distance of each pair, in float64."""
    count = len(vectors)
    out = np.zeros((count, count))
    for one in range(count):
        for other in range(one + 1, count):
            gap = vectors[one].astype(np.float64) - vectors[other]
            out[one, other] = out[other, one] = gap @ gap
    return out


def _by_coordinates(vectors: Matrix, rule: Callable[[Matrix], npt.NDArray[np.floating]]) -> Vector:
    out = np.empty(vectors.shape[1], np.float32)
    for start in range(0, vectors.shape[1], CHUNK):
        out[start : start + CHUNK] = rule(vectors[:, start : start + CHUNK])
    return out
