"""A client's budget, and the 0/1 knapsack: which blocks fit and are worth the most."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled
from sparsona.message import Mask, Vector
from sparsona.methods.pfedgate.blocks import Cut

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Budget:
    """How much of the model a client keeps, and how the blocks are chosen: `least` of every tensor is always kept, and
    with `whole_output` all of the output layer, unless it takes more than half of the density."""

    density: float
    least: float
    knapsack: Literal["greedy", "exact"] = "greedy"
    whole_output: bool = False

    def choose(self, cut: Cut, importance: Vector) -> Mask:
        """I*: the blocks that are always kept, and of the others the most important that fit.

        The greedy way is that of the authors' code: linear layers and the others have budgets of their own, and blocks
        are taken by importance. The exact one is the paper's: one budget, the best choice. Both see it in tenths. What
        is always kept takes its room from the others. Where these have none to give, as at a density of 0.1, the model
        is denser than asked for, by less than half.
        """
        if self.density >= 1:
            return np.ones(len(cut), np.bool_)
        fixed = fixed_part(self, cut)
        kept, values = fixed.kept.copy(), np.rint(10 * importance).astype(np.int64)
        solve = exact if self.knapsack == "exact" else greedy
        for free, sizes, room in fixed.groups:
            kept[free[solve(values[free], sizes, room)]] = True
        return kept


@dataclass(frozen=True)
class FixedBlocks:
    """What does not depend on the batch: the blocks that are always kept, and the groups of blocks that share a budget,
    each with its blocks' places, their sizes and the room for them."""

    kept: Mask
    groups: tuple[tuple[Integers, Integers, int], ...]


@lru_cache(maxsize=64)
def fixed_part(budget: Budget, cut: Cut) -> FixedBlocks:
    """The part of a choice that is the same for every batch of a client; it is asked for in every step."""
    first, linear, output, sizes = np.array(cut.first), np.array(cut.linear), np.array(cut.output), cut.sizes
    whole = budget.whole_output and 2 * int(sizes[output].sum()) <= budget.density * int(sizes.sum())
    kept = first | output if whole else first
    rooms = []
    if budget.knapsack == "exact":
        rooms.append((~kept, int(budget.density * sizes.sum() + 1e-9) - int(sizes[kept].sum())))
    else:
        over = 0
        for group in (linear, ~linear):
            room = round((budget.density - budget.least) * int(sizes[group & ~first].sum()))
            room -= int(sizes[group & kept & ~first].sum()) + over
            rooms.append((group & ~kept, room))
            over = max(0, -room)
    found = [(np.flatnonzero(group), room) for group, room in rooms if room > 0]
    return FixedBlocks(kept, tuple((free, sizes[free], room) for free, room in found))


def greedy(values: Integers, sizes: Integers, capacity: int) -> Mask:
    """Take by value, not by value for size; what does not fit any more is left out, and the next is tried.

    Of equal values the first comes first.

    >>> greedy(np.array([5, 9, 5]), np.array([4, 3, 1]), 5)
    array([False,  True,  True])
    """
    taken = np.zeros(len(values), np.bool_)
    for block in np.argsort(-values, kind="stable"):
        if sizes[block] <= capacity:
            taken[block] = True
            capacity -= int(sizes[block])
    return taken


def exact(values: Integers, sizes: Integers, capacity: int) -> Mask:
    """The most value that fits, and of equal choices the smallest: dynamic programming over the total value.

    It takes (number of blocks) x (sum of all values) steps, whatever the sizes.

    >>> exact(np.array([5, 9, 5]), np.array([2, 5, 3]), 5)
    array([ True, False,  True])
    >>> exact(np.array([6, 5, 5]), np.array([5, 3, 2]), 5)
    array([False,  True,  True])
    """
    return _least_weight(values.astype(np.int64), sizes.astype(np.int64), capacity)


@compiled
def _least_weight(values: Integers, sizes: Integers, capacity: int) -> Mask:
    total = 0
    for v in values:
        total += v
    never = np.int64(2) ** 62
    least = np.full(total + 1, never, np.int64)
    least[0] = 0
    used = np.zeros((len(values), total + 1), np.bool_)
    for i in range(len(values) - 1, -1, -1):  # backwards: what is read off first is the first block
        for worth in range(total, values[i] - 1, -1):
            before = least[worth - values[i]]
            if values[i] > 0 and before < never and before + sizes[i] < least[worth]:
                least[worth] = before + sizes[i]
                used[i, worth] = True
    worth = total
    while least[worth] > capacity:
        worth -= 1
    taken = np.zeros(len(values), np.bool_)
    for i in range(len(values)):
        if used[i, worth]:
            taken[i] = True
            worth -= values[i]
    return taken
