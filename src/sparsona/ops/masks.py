"""Masks: which weights of a model are active. A stored mask takes one bit per weight."""

from collections.abc import Callable, Iterable, Sequence
from math import ceil, cos, pi
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.compiled import KERNEL, compiled, i64, u32, u64
from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Mask, Positions, Vector
from sparsona.ops.sparse import Ints, Magnitudes, take_largest, topk_support

Bits: TypeAlias = npt.NDArray[np.uint8]


def pack(mask: Mask) -> Bits:
    """Return the mask as bits, eight per byte."""
    return np.packbits(mask, bitorder="little")


def unpack(bits: Bits, size: int) -> Mask:
    """Return the mask of `size` entries from its bits."""
    return np.unpackbits(bits, count=size, bitorder="little").view(np.bool_)


def scatter(mask: Mask, values: Vector) -> Vector:
    """Return the vector with `values` at active entries of `mask`, and zeros elsewhere."""
    if len(values) != np.count_nonzero(mask):
        raise WireError(f"{len(values)} values do not fit a mask of {np.count_nonzero(mask)} active entries")
    return _scattered(mask, np.append(values, np.float32(0)))


@compiled
def _scattered(mask: Mask, values: Vector) -> Vector:
    """Scatter without branches, for speed: `values` has one entry more than the mask."""
    out, bits, ones, at = np.empty(len(mask), np.uint32), values.view(np.uint32), mask.view(np.uint8), u64(0)
    for i in range(len(mask)):
        one = u64(ones[i])  # of a truth value the compiler would make a branch, and guess wrong half of the time
        out[i] = bits[at] & (u64(0) - one)
        at += one
    return out.view(np.float32)


def gather(mask: Mask, vector: Vector) -> Vector:
    """Return the entries of `vector` where `mask` is active."""
    return _gathered(mask, vector, int(np.count_nonzero(mask)))


@compiled
def _gathered(mask: Mask, vector: Vector, count: int) -> Vector:
    out, at = np.empty(count + 1, np.float32), 0
    for i in range(len(mask)):
        out[at] = vector[i]
        at += mask[i]
    return out[:count]


def flipped(mask: Mask, change: Positions) -> Mask:
    """Return the mask after a change that a peer has sent."""
    if change.size != len(mask):
        raise WireError(f"a change of {change.size} positions does not fit a mask of {len(mask)}")
    out = mask.copy()
    out[change.indices] ^= True
    return out


def random_mask(layout: Layout, counts: Sequence[int], rng: Callable[[int], np.random.Generator]) -> Mask:
    """Return a mask with `counts` active entries per tensor, by random permutations; `rng` gives one generator each."""
    mask = np.ones(layout.size, np.bool_)
    for i, (tensor, count) in enumerate(zip(layout.tensors, counts, strict=True)):
        if count < tensor.size:
            mask[tensor.start + rng(i).permutation(tensor.size)[count:]] = False
    return mask


def annealed(rate: float, round: int, rounds: int) -> float:
    """Return `rate` after cosine annealing from round 0 to exactly 0 in the last round."""
    progress = min(round / (rounds - 1), 1.0) if rounds > 1 else 1.0
    return 0.5 * rate * (1 + cos(pi * progress))


def regrown(active: Mask, weights: Vector, scores: Vector, rate: float, spans: Iterable[slice] | None = None) -> Mask:
    """Return the next mask: per span, ceil(rate * active) entries of least weight go, those of highest score come.

    Without `spans` the whole vector is one span. Any inactive entry may come, also one that has just gone; of equals
    the first go and come. The number of active entries stays the same.

    >>> weights, scores = np.array([3, 1, 2, 0, 0], np.float32), np.array([9, 9, 1, 0, 2], np.float32)
    >>> regrown(np.array([True, True, True, False, False]), weights, scores, 0.5)
    array([ True,  True, False, False,  True])
    """
    bounds = [(0, len(active))] if spans is None else [(span.start, span.stop) for span in spans]
    least, most = (np.require(vector, np.float32, KERNEL).view(np.uint32) for vector in (weights, scores))
    return _regrown(np.require(active, np.bool_, KERNEL), least, most, rate, np.array(bounds, np.int64))


@compiled
def _regrown(active: Mask, weights: Magnitudes, scores: Magnitudes, rate: float, bounds: Ints) -> Mask:
    """Regrow one span; weights are subtracted from the largest and scores rise by one, so that zeros count."""
    out, largest = active.copy(), u32(2**31 - 1)
    places, found = np.empty(len(active) + 1, np.int64), np.empty(len(active) + 1, np.int64)
    order = np.empty(len(active) + 1, np.uint32)
    for start, stop in bounds:
        inside = u64(0)
        for i in range(start, stop):
            places[inside], order[inside] = i, largest - (weights[u64(i)] & largest)
            inside += u64(active[u64(i)])
        if i64(inside) == stop - start:
            continue
        count = i64(ceil(rate * i64(inside)))
        for one in found[: take_largest(order, 0, i64(inside), count, found, 0)]:
            out[places[one]] = False
        outside = u64(0)
        for i in range(start, stop):
            places[outside], order[outside] = i, (scores[u64(i)] & largest) + u32(1)
            outside += u64(not out[u64(i)])
        for one in found[: take_largest(order, 0, i64(outside), count, found, 0)]:
            out[places[one]] = True
    return out


def masked_mean(weights: Vector, replies: Iterable[tuple[Mask, Vector]], everyone: bool = True) -> Vector:
    """Return the mean of weights that clients trained on their masks, in one pass and summed in float64.

    With `everyone` each client counts at every position, with an unchanged weight where it is not active:
    w - 1/S * sum of U_k, U_k being the update that client k has subtracted. Otherwise only active clients count. A
    weight that is active nowhere keeps its bits, and masks of ones give the bits of the plain mean.
    """
    total, holders, count = np.zeros(len(weights)), np.zeros(len(weights), np.int32), 0
    for mask, values in replies:
        if len(values) != np.count_nonzero(mask):
            raise WireError(f"{len(values)} values do not fit a mask of {np.count_nonzero(mask)} active entries")
        _add(total, holders, mask, np.append(values, np.float32(0)))
        count += 1
    if everyone:
        total += (count - holders) * weights.astype(np.float64)
        holders[:] = count
    np.divide(total, holders, out=total, where=holders > 0)
    return np.where(holders > 0, total, weights).astype(np.float32)


@compiled
def _add(total: npt.NDArray[np.float64], holders: npt.NDArray[np.int32], mask: Mask, values: Vector) -> None:
    at = 0
    for i in range(len(mask)):
        total[i] += np.float64(values[at]) * mask[i]  # what is in a reply is finite
        holders[i] += mask[i]
        at += mask[i]


def majority(masks: Iterable[Mask], layout: Layout) -> Mask:
    """Return the most frequent active entries, as many per tensor as the masks have; of equals the first."""
    votes, counts = np.zeros(layout.size, np.float32), [0] * len(layout.tensors)
    for mask in masks:
        votes += mask
        counts = [int(mask[t.slice].sum()) for t in layout.tensors]
    out = np.zeros(layout.size, np.bool_)
    for tensor, count in zip(layout.tensors, counts, strict=True):
        out[tensor.start + topk_support(np.float32(1) + votes[tensor.slice], count)] = True
    return out
