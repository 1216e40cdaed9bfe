"""Arithmetic of sparse vectors on their positions."""

from __future__ import annotations

import numpy as np

from sparsona.message import Sparse


def add(one: Sparse, other: Sparse) -> Sparse:
    """The sum, on the positions of either.

    >>> add(Sparse(4, [0, 2], [1, 1]), Sparse(4, [2, 3], [5, 5])).dense()
    array([1., 0., 6., 5.], dtype=float32)
    """
    indices = np.union1d(one.indices, other.indices)
    values = np.zeros(len(indices), np.float32)
    values[np.searchsorted(indices, one.indices)] = one.values
    values[np.searchsorted(indices, other.indices)] += other.values
    return Sparse(one.size, indices, values)
