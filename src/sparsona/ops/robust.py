"""Means of clients' vectors that a minority of bad ones cannot move at will.

- `median` and `trimmed`: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
  Statistical Rates", ICML 2018. Both work coordinate by coordinate.
- `agree`: the mean of the clients whose updates point along the others'. A reversed update of any length points against
  them. It follows FoolsGold's and FLTrust's use of the cosine (Cao, Fang, Liu, Gong, "FLTrust", NDSS 2021), without
  data on the server.
- `krum`: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
  Descent", NeurIPS 2017.

All but `agree` count every client once, whatever number of examples it claims. All hold n x d numbers, where the
weighted mean holds d. Median and trimmed mean sort n numbers per coordinate. Krum takes n (n - 1) / 2 distances.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from sparsona.message import Sparse, Vector
from sparsona.ops.elementwise import elementwise_mean
from sparsona.ops.mean import weighted_mean

PATTERN = r"^(mean|median|krum|agree|trimmed:0?\.[0-4][0-9]*)$"
MergeRule: TypeAlias = Annotated[
    str,
    Field(
        pattern=PATTERN,
        description="how replies are combined: mean (by examples), median, trimmed:SHARE, krum or agree",
    ),
]
"""The rules that :func:`merged` knows."""

CHUNK = 2**16
"""Coordinates that are sorted at a time."""

Matrix = npt.NDArray[np.float32]


def merged(rule: MergeRule, pairs: Iterable[tuple[float, Vector]], start: Vector) -> Vector:
    """Merge vectors by a rule: ``mean`` (by weights), ``median``, ``trimmed:SHARE``, ``krum`` or ``agree``.

    With ``agree``, the directions from the common `start` are compared.

    >>> honest = [(1, np.array([1, 2], np.float32)), (1, np.array([3, 2], np.float32))] * 2
    >>> bad, start = (1, np.array([-2, -2], np.float32)), np.zeros(2, np.float32)
    >>> merged("median", [*honest, bad], start), merged("agree", [*honest, bad], start)
    (array([1., 2.], dtype=float32), array([2., 2.], dtype=float32))
    """
    if rule == "mean":
        return weighted_mean(pairs)
    if rule == "agree":
        several = list(pairs)
        kept = agreeing([vector - start for _, vector in several])
        return weighted_mean(pair for pair, one in zip(several, kept, strict=True) if one)
    vectors = np.stack([vector for _, vector in pairs])
    if rule == "median":
        return median(vectors)
    return krum(vectors) if rule == "krum" else trimmed_mean(vectors, float(rule.removeprefix("trimmed:")))


def elementwise_merged(
    rule: MergeRule, size: int, replies: Iterable[tuple[float, Sparse]], absent: bool = False
) -> Vector:
    """Merge sparse updates: at each position, over the clients that sent it (see :func:`elementwise_mean`).

    >>> sparse = [(1, Sparse(2, np.array([0, 1]), np.array(v, np.float32))) for v in ([1, 2], [3, 2], [900, -9])]
    >>> elementwise_merged("median", 2, sparse)
    array([3., 2.], dtype=float32)
    """
    if rule == "mean":
        return elementwise_mean(size, replies, absent)
    several = list(replies)
    if rule == "krum":
        return krum(np.stack([sparse.dense() for _, sparse in several]))
    if rule == "agree":
        kept = agreeing([sparse.dense() for _, sparse in several])
        return elementwise_mean(size, (pair for pair, one in zip(several, kept, strict=True) if one), absent)
    if absent:
        several = [(weight, Sparse(size, np.arange(size), sparse.dense())) for weight, sparse in several]
    return _sent_middle(size, several, 0.5 if rule == "median" else float(rule.removeprefix("trimmed:")))


def _sent_middle(size: int, replies: Sequence[tuple[float, Sparse]], share: float) -> Vector:
    """Return the mean of the sent values per position, without the `share` of largest and of smallest ones."""
    places = np.concatenate([sparse.indices for _, sparse in replies])
    values = np.concatenate([sparse.values for _, sparse in replies])
    order = np.lexsort((values, places))
    counts = np.bincount(places, minlength=size)
    cuts = np.minimum((share * counts + 1e-9).astype(np.int64), np.maximum(counts - 1, 0) // 2)
    sums = np.concatenate([[0.0], np.cumsum(values[order], dtype=np.float64)])
    ends = np.cumsum(counts)
    inner = sums[ends - cuts] - sums[ends - counts + cuts]
    out: Vector = (inner / np.maximum(counts - 2 * cuts, 1)).astype(np.float32)
    return out


def agreeing(updates: Sequence[Vector]) -> list[bool]:
    """Return per update whether its cosine with the sum of the others' directions is not negative.

    If none passes, or there are fewer than three, all count.
    """
    lengths = [float(np.linalg.norm(update)) for update in updates]
    total = np.sum([u.astype(np.float64) / norm for u, norm in zip(updates, lengths, strict=True) if norm], axis=0)
    along = [float(u @ total) >= norm for u, norm in zip(updates, lengths, strict=True)]
    return along if len(updates) > 2 and any(along) else [True] * len(updates)


def median(vectors: Matrix) -> Vector:
    """Return the median per coordinate; of an even number the mean of the middle two."""
    return _by_coordinates(vectors, lambda part: np.median(part, axis=0))


def trimmed_mean(vectors: Matrix, share: float) -> Vector:
    """Return the mean per coordinate without the `share` of largest and of smallest values.

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
    """Return the vector with the least summed squared distance to its n - f - 2 nearest neighbours.

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
    """Return the squared Euclidean distance of each pair, in float64."""
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
