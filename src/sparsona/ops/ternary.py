"""Sparse ternary compression: the largest entries of each tensor, all of them plus or minus one magnitude."""

from collections.abc import Iterable

import numpy as np

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Sparse, Ternary, Vector
from sparsona.ops.topk import top_supports


def ternarise(vector: Vector, layout: Layout, sparsity: float) -> Ternary:
    """Keep each parameter tensor's largest entries as signs times their mean magnitude.

    >>> from torch import nn
    >>> ternarise(np.array([1, -9, 2, 7, 0.5], np.float32), Layout.of(nn.Linear(4, 1)), 0.5).dense()
    array([ 0. , -8. ,  0. ,  8. ,  0.5], dtype=float32)
    """
    indices = top_supports(vector, (t.slice for t in layout.tensors), sparsity)
    tensor = np.searchsorted(np.cumsum(layout.lengths), indices, side="right")
    totals = np.bincount(tensor, np.abs(vector[indices]).astype(np.float64), len(layout.lengths))
    counts = np.bincount(tensor, minlength=len(layout.lengths))
    magnitudes = np.divide(totals, counts, out=np.zeros(len(totals)), where=counts > 0)
    return Ternary(layout.lengths, indices, vector[indices] < 0, magnitudes.astype(np.float32))


def as_sparse(part: Ternary, layout: Layout) -> Sparse:
    """Return a ternary vector of this layout as positions and values.

    >>> from torch import nn
    >>> as_sparse(Ternary((4, 1), [1], [True], [8, 0]), Layout.of(nn.Linear(4, 1))).values
    array([-8.], dtype=float32)
    """
    if part.sizes != layout.lengths:
        raise WireError(f"a ternary vector is cut into tensors of {part.sizes}, expected {layout.lengths}")
    tensor = np.searchsorted(np.cumsum(part.sizes), part.indices, side="right")
    signs = np.where(part.negative, np.float32(-1), np.float32(1))
    return Sparse(layout.size, part.indices, signs * part.magnitudes[tensor])


def ternary_bits(parts: Iterable[Ternary]) -> float:
    """Estimate the bits on the wire: the entropy of the positions and one bit per sign.

    >>> round(ternary_bits([Ternary((100,), np.arange(0, 100, 10), np.zeros(10, bool), [1])]))
    89
    """
    bits = 0.0
    for part in parts:
        size, count = sum(part.sizes), len(part.indices)
        for share in (count / size, 1 - count / size):
            bits -= size * share * np.log2(share) if share else 0.0
        bits += count + 32 * len(part.sizes)
    return float(bits)
