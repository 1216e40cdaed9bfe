"""Blocks: each tensor of a model cut into a few contiguous pieces, which are kept or dropped as wholes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, prod

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Blocks, Mask, Vector


def equal_split(size: int, count: int) -> list[int]:
    """The sizes of at most `count` blocks of equal size, the last one shorter.

    >>> equal_split(32, 5), equal_split(62, 5), equal_split(3, 5)
    ([7, 7, 7, 7, 4], [13, 13, 13, 13, 10], [1, 1, 1])
    """
    block = ceil(size / min(count, size))
    return [min(block, size - start) for start in range(0, size, block)]


def first_split(size: int, count: int, share: float) -> list[int]:
    """The sizes of at most `count` blocks: a first one of floor(share * size), but at least one entry, equal others.

    >>> first_split(800, 5, 0.1), first_split(3, 5, 0.1), first_split(1, 5, 0.1)
    ([80, 180, 180, 180, 180], [1, 1, 1], [1])
    """
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
    """Return the weighted mean of each block over its senders; 0 without any. One pass, summed in float64.

    >>> cut = Cut((0, 1, 2), (True, False), (True, True), (False, False))
    >>> blockwise_mean(cut, [(1, Blocks(2, np.array([0]), np.array([4.0]))), (3, Blocks(2, [0, 1], [8.0, 5.0]))])
    array([7., 5.], dtype=float32)
    """
    total, weight = np.zeros(cut.bounds[-1]), np.zeros(len(cut))
    for share, part in replies:
        for span, values in cut.spread(part):
            total[span] += share * values.astype(np.float64)
        weight[part.kept] += share
    each = np.repeat(weight, cut.sizes)
    np.divide(total, each, out=total, where=each > 0)
    return total.astype(np.float32)
