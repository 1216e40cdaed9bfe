"""How alike many clients' updates are, pair by pair, and mixtures of vectors by such a matrix.

The vectors stay where they are: a block of a few columns at a time is widened to float64, so 100 clients of 1.66M
weights need a few MB beside their messages and never a matrix of clients by weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsona.message import Vector
from sparsona.ops.similarity import TINY

Matrix = npt.NDArray[np.float64]
BLOCK = 1 << 19
"""Numbers in a block: 4 MB in float64."""


@dataclass(frozen=True)
class Similarity:
    """Who is like whom: a symmetric matrix a stage, rows and columns in the order of `clients`.

    A pair that was never measured is 0; the row of a client that was never measured is all 0, diagonal included.
    """

    clients: tuple[str, ...]
    stages: dict[str, Matrix]

    def updated(self, clients: Sequence[str], stages: dict[str, Matrix], keep: float = 0.0) -> Similarity:
        """With the pairs of `clients` measured anew; `keep` of the old value stays, where there was one."""
        names = self.clients + tuple(k for k in clients if k not in self.clients)
        at = np.ix_(*[[names.index(k) for k in clients]] * 2)
        out = {}
        for stage, new in stages.items():
            old = np.zeros((len(names), len(names)))
            old[: len(self.clients), : len(self.clients)] = self.stages.get(stage, 0.0)
            known = (np.diag(old) > 0)[at[0]] & (np.diag(old) > 0)[at[1]]
            old[at] = np.where(known, keep * old[at] + (1 - keep) * new, new)
            out[stage] = old
        return Similarity(names, out)

    def of(self, stage: str, clients: Sequence[str]) -> Matrix:
        """The matrix of a stage for these clients, in this order; 0 for whoever is not known."""
        out = np.zeros((len(clients), len(clients)))
        known = [i for i, k in enumerate(clients) if k in self.clients]
        if known and stage in self.stages:
            places = [self.clients.index(clients[i]) for i in known]
            out[np.ix_(known, known)] = self.stages[stage][np.ix_(places, places)]
        return out


def _blocks(vectors: Sequence[Vector], span: slice) -> Iterator[tuple[slice, Matrix]]:
    """The columns of `span`, a block at a time, as clients by columns."""
    columns = max(256, BLOCK // len(vectors))
    block = np.empty((len(vectors), columns))
    for start in range(span.start, span.stop, columns):
        part = slice(start, min(start + columns, span.stop))
        for row, vector in zip(block, vectors, strict=True):
            row[: part.stop - start] = vector[part]
        yield part, block[:, : part.stop - start]


def cosines(vectors: Sequence[Vector], spans: Iterable[slice]) -> Matrix:
    """The cosine of every pair over the entries in `spans`: within -1..1, and 0 where a norm vanishes.

    >>> cosines([np.array([3, 0, 9], np.float32), np.array([3, 4, 0], np.float32)], [slice(0, 2)])
    array([[1. , 0.6],
           [0.6, 1. ]])
    """
    gram = np.zeros((len(vectors), len(vectors)))
    for span in spans:
        for _, block in _blocks(vectors, span):
            gram += block @ block.T
    norms = np.sqrt(np.diag(gram))
    there = norms >= TINY
    out = np.zeros_like(gram)
    np.divide(gram, np.outer(norms, norms), out=out, where=np.outer(there, there))
    out = np.clip((out + out.T) / 2, -1.0, 1.0)
    np.fill_diagonal(out, there.astype(np.float64))
    return out


def row_softmax(matrix: Matrix) -> Matrix:
    """exp(S_ij) / sum_m exp(S_im).

    >>> row_softmax(np.zeros((2, 2)))
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    powers = np.exp(matrix - matrix.max(1, keepdims=True))
    shares: Matrix = powers / powers.sum(1, keepdims=True)
    return shares


def add_mixtures(onto: Sequence[Vector], shares: Matrix, vectors: Sequence[Vector], spans: Iterable[slice]) -> None:
    """onto_i += sum_j shares_ij vectors_j within `spans`, in place, summed in float64.

    >>> onto = [np.zeros(2, np.float32)]
    >>> add_mixtures(onto, np.array([[0.5, 0.5]]), [np.ones(2, np.float32), np.full(2, 3, np.float32)], [slice(0, 2)])
    >>> onto
    [array([2., 2.], dtype=float32)]
    """
    for span in spans:
        for part, block in _blocks(vectors, span):
            for vector, mixture in zip(onto, shares @ block, strict=True):
                vector[part] = vector[part] + mixture
