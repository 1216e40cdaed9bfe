"""Downstream personalised sparsification: which positions of the aggregate go to one client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np
import numpy.typing as npt

from sparsona.compiled import Places, compiled
from sparsona.message import IndexSet, Mask, Sparse, Vector
from sparsona.ops.pairwise import cosine_of

Ranks = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CommonChoice:
    """The positions and values that are largest over all clients, prepared for comparison with each client's.

    `rank` is the place of each position among the chosen ones, -1 for the others. `bounds` are the ends of the spans
    that are compared each by itself, `cuts` the places of these ends among the chosen ones.
    """

    support: Sparse
    rank: Ranks
    bounds: Ints
    cuts: Ints

    @classmethod
    def of(cls, support: Sparse, spans: Sequence[slice]) -> CommonChoice:
        """Return the common choice, prepared for comparison."""
        rank = np.full(support.size, -1, np.int32)
        rank[support.indices] = np.arange(len(support.indices), dtype=np.int32)
        bounds = np.array([(span.start, span.stop) for span in spans], np.int64)
        return cls(support, rank, bounds, support.indices.searchsorted(bounds))

    def personal(self, update: Sparse, rng: Callable[[int], np.random.Generator]) -> tuple[IndexSet, float]:
        """Return the positions for the client that sent `update`, as many in each span as there are common ones. Also
        return the client's correlation distance d from the others, in 0..1: the mean over the spans, weighted by chosen
        positions.

        In each span, positions in both sets are taken. Of the others a share d comes from the client's own positions
        and 1 - d from the common ones, drawn at random. So a client unlike the others keeps its own positions. Each
        span has its own d, and `rng` gives the generator of a span by its number.

        >>> same = Sparse(9, np.array([2, 5]), np.array([1, -1], np.float32))
        >>> CommonChoice.of(same, [slice(0, 9)]).personal(same, np.random.default_rng)
        (array([2, 5]), 0.0)
        """
        common, own = (part.indices.view(np.uint64) for part in (self.support, update))
        own_cuts = update.indices.searchsorted(self.bounds).tolist()
        found, total = [], 0.0
        for number, ((first, last), (begin, end)) in enumerate(zip(self.cuts.tolist(), own_cuts, strict=True)):
            span, his, sent = common[first:last], own[begin:end], update.values[begin:end]
            in_own, in_common, both, *products = _compare(self.rank, first, self.support.values[first:last], his, sent)
            distance = 0.5 - 0.5 * cosine_of(*products)
            rest, chance = len(span) - both, rng(number)
            theirs = min(floor(distance * rest + 0.5), len(his) - both)
            from_common = _draw(in_own, rest - theirs, rest, chance)
            from_own = _draw(in_common, theirs, len(his) - both, chance)
            found.append(_merge(_taken(span, in_own | from_common), _taken(his, from_own)))
            total += distance * len(found[-1])
        chosen: IndexSet = np.concatenate([np.empty(0, np.uint64), *found]).view(np.int64)
        return chosen, total / len(chosen) if len(chosen) else 0.5


@compiled
def _compare(
    rank: Ranks, first: int, values: Vector, own: Places, sent: Vector
) -> tuple[Mask, Mask, int, float, float, float]:
    """Return the common positions that the client has, its own that are common, their number, the product and squared
    norms.
    """
    in_own, in_common = np.zeros(len(values), np.bool_), np.zeros(len(own), np.bool_)
    both, product, norm, sent_norm = 0, 0.0, 0.0, 0.0
    for value in values:
        norm += np.float64(value) * np.float64(value)
    for value in sent:
        sent_norm += np.float64(value) * np.float64(value)
    for j in range(len(own) if len(values) else 0):
        place = rank[own[j]] - first
        hit = place >= 0
        at = np.uint64(place if hit else 0)
        in_own[at] |= hit
        in_common[j] = hit
        both += hit
        product += hit * np.float64(values[at]) * np.float64(sent[j])
    return in_own, in_common, both, product, norm, sent_norm


def _draw(shared: Mask, wanted: int, among: int, chance: np.random.Generator) -> Mask:
    """Draw a uniform random subset of `wanted` of the `among` places that are not shared.

    Each is drawn with probability wanted / among. Then random places are added or removed until the number is right. By
    symmetry, all subsets of that size are equally likely.
    """
    drawn = np.zeros(len(shared), np.bool_)
    if wanted == 0:
        return drawn
    short = wanted - _toss(drawn, shared, chance.random(len(shared), np.float32), np.float32(wanted / among))
    while short:
        short = _adjust(drawn, shared, short, chance.integers(0, len(shared), 4 * abs(short) + 8))
    return drawn


@compiled
def _toss(drawn: Mask, shared: Mask, chance: Vector, bound: np.float32) -> int:
    """Draw each unshared place whose random number is below the bound; return the number of drawn places."""
    count = 0
    for i in range(len(shared)):
        take = (not shared[i]) & (chance[i] < bound)
        drawn[i] = take
        count += take
    return count


@compiled
def _adjust(drawn: Mask, shared: Mask, short: int, lots: IndexSet) -> int:
    """Add or remove random places; return the number still missing (negative: too many)."""
    for place in lots:
        if short > 0 and not (shared[place] or drawn[place]):
            drawn[place] = True
            short -= 1
        elif short < 0 and drawn[place]:
            drawn[place] = False
            short += 1
    return short


@compiled
def _taken(places: Places, flags: Mask) -> Places:
    out = np.empty(len(places) + 1, np.uint64)
    count = np.uint64(0)
    for i in range(len(places)):
        out[count] = places[i]
        count += np.uint64(flags[i])
    return out[: np.int64(count)]


@compiled
def _merge(one: Places, other: Places) -> Places:
    """Return the union of two disjoint sorted sets."""
    out = np.empty(len(one) + len(other), np.uint64)
    i = j = n = 0
    while i < len(one) and j < len(other):
        first = one[i] < other[j]
        out[n] = one[i] if first else other[j]
        i += first
        j += not first
        n += 1
    out[n : n + len(one) - i] = one[i:]
    out[n + len(one) - i :] = other[j:]
    return out
