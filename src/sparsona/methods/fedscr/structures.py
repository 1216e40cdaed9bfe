"""Filters and channels of weight tensors: which of them a client's update is worth sending.

A tensor of two or more dimensions is a table of rows (filters, outputs) and columns (channels, inputs), each cell
being a kernel. Rows and columns are structures; a cell is sent if both its row and its column are. Vectors (biases)
are always sent whole.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError
from sparsona.layout import Layout, Tensor
from sparsona.message import Mask, Vector

Sums = npt.NDArray[np.float64]
Rule = Callable[[Sums, Sums], tuple[Mask, Mask]]
"""Maps the magnitudes of rows and of columns to the kept ones."""


def above(threshold: float) -> Rule:
    """Keep structures whose sum reaches the threshold.

    >>> above(3.0)(np.array([2.0, 3.0]), np.array([5.0, 1.0]))
    (array([False,  True]), array([ True, False]))
    """
    return lambda rows, columns: (rows >= threshold, columns >= threshold)


def share(sparsity: float) -> Rule:
    """Keep at most 1 - `sparsity` of the cells, as many as one threshold on the sums relative to their largest allows.

    At least one cell is kept, unless all are zero.

    >>> share(0.5)(np.array([8.0, 4.0, 2.0, 1.0]), np.array([6.0, 9.0]))
    (array([ True,  True, False, False]), array([ True,  True]))
    >>> share(0.9)(np.array([8.0, 4.0]), np.array([6.0, 6.1]))
    (array([ True, False]), array([False,  True]))
    """

    def keep(rows: Sums, columns: Sums) -> tuple[Mask, Mask]:
        if not rows.any():
            return rows > 0, columns > 0
        r, c = rows / rows.max(), columns / columns.max()
        cuts = np.unique(np.concatenate([[0.0], r, c]))[:-1]
        count = [len(part) - np.searchsorted(np.sort(part), cuts, side="right") for part in (r, c)]
        fits = count[0] * count[1] <= (1 - sparsity) * len(r) * len(c) + 1e-9
        cut = cuts[np.argmax(fits) if fits.any() else -1]
        return r > cut, c > cut

    return keep


def keep_structures(update: Vector, layout: Layout, rule: Rule) -> Mask:
    """Return the structures that `rule` keeps: for each table its rows, then its columns."""
    found: list[Mask] = []
    for tensor in _tables(layout):
        cells = np.abs(update[tensor.slice].astype(np.float64)).reshape(*tensor.shape[:2], -1).sum(2)
        found += rule(cells.sum(1), cells.sum(0))
    return np.concatenate(found) if found else np.zeros(0, np.bool_)


def structures(layout: Layout) -> int:
    """Return the number of structures.

    >>> from torch import nn
    >>> structures(Layout.of(nn.Conv2d(2, 3, 5)))
    5
    """
    return sum(sum(tensor.shape[:2]) for tensor in _tables(layout))


def sent_entries(kept: Mask, layout: Layout) -> Mask:
    """Return the mask of the sent entries, given the kept structures.

    >>> from torch import nn
    >>> sent_entries(np.array([True, False, True, False]), Layout.of(nn.Linear(2, 2)))
    array([ True, False, False, False,  True,  True])
    """
    if len(kept) != structures(layout):
        raise WireError(f"a reply speaks of {len(kept)} structures, the model has {structures(layout)}")
    out = np.ones(layout.size, np.bool_)
    at = 0
    for tensor in _tables(layout):
        rows, columns = tensor.shape[:2]
        cells = np.outer(kept[at : at + rows], kept[at + rows : at + rows + columns])
        out[tensor.slice] = np.repeat(cells.ravel(), tensor.size // cells.size)
        at += rows + columns
    return out


def _tables(layout: Layout) -> list[Tensor]:
    return [tensor for tensor in layout.tensors if len(tensor.shape) >= 2]
