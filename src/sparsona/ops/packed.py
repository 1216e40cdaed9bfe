"""A stored sparse vector: one bit per position and its values, a third of the size with sorted 64-bit positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsona.bits import bitmap, places
from sparsona.message import Sparse, Vector


@dataclass(frozen=True, eq=False)
class Packed:
    """A packed sparse vector, as a server keeps it per client, or a client of its past uploads.

    >>> Packed.of(Sparse(9, np.array([1, 8]), np.array([5, 7], np.float32))).sparse().indices
    array([1, 8])
    """

    size: int
    bits: npt.NDArray[np.uint8]
    values: Vector

    @classmethod
    def of(cls, sparse: Sparse) -> Packed:
        """Pack a sparse vector."""
        return cls(sparse.size, bitmap(sparse.size, sparse.indices), sparse.values)

    def sparse(self) -> Sparse:
        """Unpack the sparse vector."""
        return Sparse.of_sorted(self.size, places(self.bits), self.values)

    def plus(self, other: Packed) -> Packed:
        """Return the sum, on the positions of both."""
        return Packed.of(add(self.sparse(), other.sparse()))

    def added_to(self, vector: Vector) -> Vector:
        """Return `vector` plus these entries, as a new vector."""
        return with_added(vector, self.sparse())


def with_added(vector: Vector, update: Sparse) -> Vector:
    """Return `vector` plus an update, as a new vector.

    >>> with_added(np.float32([5, 7]), Sparse(2, np.array([0]), np.float32([4])))
    array([9., 7.], dtype=float32)
    """
    out = vector.copy()
    out[update.indices] += update.values
    return out


def without(vector: Vector, sent: Sparse) -> Vector:
    """Return `vector` minus the `sent` entries: the residual of error feedback.

    >>> without(np.float32([5, 7]), Sparse(2, np.array([0]), np.float32([4])))
    array([1., 7.], dtype=float32)
    """
    out = vector.copy()
    out[sent.indices] -= sent.values
    return out


def add(one: Sparse, other: Sparse) -> Sparse:
    """Return the sum, on the positions of both.

    >>> add(Sparse(4, [0, 2], [1, 1]), Sparse(4, [2, 3], [5, 5])).dense()
    array([1., 0., 6., 5.], dtype=float32)
    """
    indices = np.union1d(one.indices, other.indices)
    values = np.zeros(len(indices), np.float32)
    values[np.searchsorted(indices, one.indices)] = one.values
    values[np.searchsorted(indices, other.indices)] += other.values
    return Sparse(one.size, indices, values)
