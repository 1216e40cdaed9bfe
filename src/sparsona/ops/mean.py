"""Means of clients' vectors: weighted, of sparse vectors at each position, and means that a few bad ones cannot move.

- `median` and `trimmed`: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
  Statistical Rates", ICML 2018. Both work coordinate by coordinate.
- `agree`: the mean of the clients whose updates point along the others'. A reversed update of any length points against
  them. It follows FoolsGold's and FLTrust's use of the cosine (Cao, Fang, Liu, Gong, "FLTrust", NDSS 2021), without
  data on the server.
- `krum`: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
  Descent", NeurIPS 2017.

All but `mean` and `agree` count every client once, whatever number of examples it claims. All but `mean`, which holds d
numbers, hold n x d. Median and trimmed mean sort n numbers per coordinate. Krum takes n (n - 1) / 2 distances.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from sparsona.compiled import Places, compiled
from sparsona.message import Sparse, Vector

Sums: TypeAlias = npt.NDArray[np.float64]

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

TOGETHER, BLOCK = 8, 1024
"""Number of sparse replies that are folded in together, and positions per block."""

NOTHING = Sparse(0, np.zeros(0, np.int64), np.zeros(0, np.float32))


def weighted_mean(pairs: Iterable[tuple[float, Vector]]) -> Vector:
    """Return the weighted mean of vectors, in one pass, with one vector in memory, summed in float64."""
    total, weight = None, 0.0
    for w, vector in pairs:
        if total is None:
            total = np.zeros(len(vector), np.float64)
        _add_weighted(total, vector, float(w))
        weight += w
    if total is None or weight <= 0:
        raise ValueError("a mean needs at least one vector of positive weight")
    out: Vector = (total / weight).astype(np.float32)
    return out


@compiled
def _add_weighted(total: npt.NDArray[np.float64], vector: Vector, weight: float) -> None:
    for i in range(len(total)):
        total[i] += weight * np.float64(vector[i])


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
    """Merge sparse updates: at each position, over the clients that sent it (see :func:`elementwise_mean`)."""
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
