"""A sparse vector at rest: a bit a position and its values, a third of what sorted 64-bit positions take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsona.bits import bitmap, places
from sparsona.message import Sparse, Vector


@dataclass(frozen=True, eq=False)
class Packed:
    """What a server keeps for each client, or a client of what it has sent.

    >>> Packed.of(Sparse(9, np.array([1, 8]), np.array([5, 7], np.float32))).sparse().indices
    array([1, 8])
    """

    size: int
    bits: npt.NDArray[np.uint8]
    values: Vector

    @classmethod
    def of(cls, sparse: Sparse) -> Packed:
        """A sparse vector at rest."""
        return cls(sparse.size, bitmap(sparse.size, sparse.indices), sparse.values)

    def sparse(self) -> Sparse:
        """The sparse vector again."""
        return Sparse.of_sorted(self.size, places(self.bits), self.values)

    def plus(self, other: Packed) -> Packed:
        """The sum, on the positions of either."""
        return Packed.of(add(self.sparse(), other.sparse()))

    def added_to(self, vector: Vector) -> Vector:
        """`vector` plus these entries, as a new vector."""
        return with_added(vector, self.sparse())


def with_added(vector: Vector, update: Sparse) -> Vector:
    """`vector` plus an update, as a new vector.

    >>> with_added(np.float32([5, 7]), Sparse(2, np.array([0]), np.float32([4])))
    array([9., 7.], dtype=float32)
    """
    out = vector.copy()
    out[update.indices] += update.values
    return out


def without(vector: Vector, sent: Sparse) -> Vector:
    """`vector` less what is `sent`: what error feedback keeps for later.

    >>> without(np.float32([5, 7]), Sparse(2, np.array([0]), np.float32([4])))
    array([1., 7.], dtype=float32)
    """
    out = vector.copy()
    out[sent.indices] -= sent.values
    return out


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
