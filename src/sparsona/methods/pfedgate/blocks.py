"""Blocks: each tensor of a model cut into a few contiguous pieces, which are kept or dropped as wholes.

A client's budget and the 0/1 knapsack say which ones fit and are worth the most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, floor, prod
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled
from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Blocks, Mask, Vector

Integers: TypeAlias = npt.NDArray[np.int64]


def equal_split(size: int, count: int) -> list[int]:
    """The sizes of at most `count` blocks of equal size, the last one shorter."""
    block = ceil(size / min(count, size))
    return [min(block, size - start) for start in range(0, size, block)]


def first_split(size: int, count: int, share: float) -> list[int]:
    """The sizes of at most `count` blocks: a first one of floor(share * size), but at least one entry, equal others."""
    first = max(1, floor(share * size + 1e-9))
    rest = size - first
    return [first, *equal_split(rest, count - 1)] if rest and count > 1 else [size]


def channel_split(shape: tuple[int, ...], count: int) -> list[int]:
    """The sizes of at most `count` blocks of whole output channels (rows of a linear layer), as equal as they can be.

    >>> channel_split((32, 1, 5, 5), 5), channel_split((2, 3), 5), channel_split((32,), 5)
    ([175, 175, 175, 175, 100], [3, 3], [7, 7, 7, 7, 4])
    """
    inner = prod(shape[1:])
    return [rows * inner for rows in equal_split(shape[0], count)] if shape else [1]


@dataclass(frozen=True)
class Cut:
    """Where the blocks of a model begin and end: block l is ``bounds[l]:bounds[l + 1]`` of the trainable weights.

    `first` marks the first block of every tensor, `linear` the blocks of linear layers, `output` those of the last
    layer with a matrix or more, if there are several.
    """

    bounds: tuple[int, ...]
    first: tuple[bool, ...]
    linear: tuple[bool, ...]
    output: tuple[bool, ...]

    @classmethod
    def of(cls, layout: Layout, count: int, first_share: float | None = None, by_channel: bool = False) -> Cut:
        """Cut each tensor into `count` blocks: equal ones, a first one of `first_share`, or whole output channels.

        >>> from torch import nn
        >>> Cut.of(Layout.of(nn.Linear(4, 2)), 4).bounds
        (0, 2, 4, 6, 8, 9, 10)
        """
        flat_layers = {t.name.rpartition(".")[0] for t in layout.tensors if len(t.shape) == 2}
        layers = dict.fromkeys(t.name.rpartition(".")[0] for t in layout.tensors if len(t.shape) > 1)  # norms are none
        head = list(layers)[1:][-1:]
        bounds, first, linear, output = [0], [], [], []
        for tensor in layout.tensors:
            if by_channel:
                sizes = channel_split(tensor.shape, count)
            elif first_share is None:
                sizes = equal_split(tensor.size, count)
            else:
                sizes = first_split(tensor.size, count, first_share)
            for i, size in enumerate(sizes):
                bounds.append(bounds[-1] + size)
                first.append(i == 0)
                linear.append(tensor.name.rpartition(".")[0] in flat_layers)
                output.append(tensor.name.rpartition(".")[0] in head)
        return cls(tuple(bounds), tuple(first), tuple(linear), tuple(output))

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the lengths of the blocks."""
        bounds = np.array(self.bounds, np.int64)
        return bounds[1:] - bounds[:-1]

    def span(self, block: int) -> slice:
        """Return the place of a block in the vector."""
        return slice(self.bounds[block], self.bounds[block + 1])

    def mask(self, kept: Mask) -> Mask:
        """Return the mask of the kept blocks."""
        return np.repeat(kept, self.sizes)

    def take(self, vector: Vector, kept: Mask) -> Blocks:
        """Return the kept blocks of `vector`, to be sent."""
        chosen = np.flatnonzero(kept)
        parts = [vector[self.span(int(b))] for b in chosen]
        return Blocks(len(self), chosen, np.concatenate(parts) if parts else np.zeros(0, np.float32))

    def spread(self, part: Blocks) -> list[tuple[slice, Vector]]:
        """Return the spans of received blocks and their values; refuse a part that does not fit."""
        sizes = self.sizes[part.kept] if part.count == len(self) else np.zeros(0, np.int64)
        if part.count != len(self) or int(sizes.sum()) != len(part.values):
            raise WireError(
                f"{len(part.values)} values in {part.count} blocks do not fit a model of {len(self)} blocks"
            )
        ends = np.cumsum(sizes)
        return [(self.span(int(b)), part.values[e - n : e]) for b, e, n in zip(part.kept, ends, sizes, strict=True)]


def blockwise_mean(cut: Cut, replies: Iterable[tuple[float, Blocks]]) -> Vector:
    """Return the weighted mean of each block over its senders; 0 without any. One pass, summed in float64."""
    total, weight = np.zeros(cut.bounds[-1]), np.zeros(len(cut))
    for share, part in replies:
        for span, values in cut.spread(part):
            total[span] += share * values.astype(np.float64)
        weight[part.kept] += share
    each = np.repeat(weight, cut.sizes)
    np.divide(total, each, out=total, where=each > 0)
    return total.astype(np.float32)


@dataclass(frozen=True)
class Budget:
    """The share of the model that a client keeps, and how its blocks are chosen: `least` of every tensor is always
    kept, and with `whole_output` all of the output layer, unless it takes more than half of the density.
    """

    density: float
    least: float
    knapsack: Literal["greedy", "exact"] = "greedy"
    whole_output: bool = False

    def choose(self, cut: Cut, importance: Vector) -> Mask:
        """I*: the blocks that are always kept, and of the others the most important that fit.

        The greedy way is that of the authors' code: linear layers and the others have budgets of their own, and blocks
        are taken by importance. The exact one is the paper's: one budget, the best choice. Both see it in tenths.
        Blocks that are always kept take room from the others. If that does not suffice, as at a density of 0.1, the
        model is denser than requested, by less than half.
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
    """The part of a choice that is the same for every batch. It holds the blocks that are always kept, and the groups
    of blocks that share a budget: places, sizes and room.
    """

    kept: Mask
    groups: tuple[tuple[Integers, Integers, int], ...]


@lru_cache(maxsize=64)
def fixed_part(budget: Budget, cut: Cut) -> FixedBlocks:
    """Return the part of a choice that is the same for every batch of a client; cached, since every step needs it."""
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
    """Take blocks by value, not by value per size; a block that does not fit is skipped.

    Of equal values the first comes first.
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
