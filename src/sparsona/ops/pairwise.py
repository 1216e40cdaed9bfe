"""Similarity of clients' updates, pair by pair, and mixtures of vectors by such a matrix.

Vectors may be made on demand, as replies are decoded. Two blocks of clients, at most `HELD` numbers, are held at a
time, and a few of their columns are widened to float64. So memory does not grow with the clients; but with several
blocks each vector is made (blocks + 1) / 2 times on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled
from sparsona.message import Vector

Matrix = npt.NDArray[np.float64]
BLOCK = 1 << 19
"""Numbers in a block of columns: 4 MB in float64."""
HELD = 1 << 26
"""Numbers of clients' vectors held at a time: 256 MB in float32."""


class Vectors(Protocol):
    """Vectors by number: a list, or an object that makes each on demand."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> Vector: ...


@dataclass(frozen=True)
class LazyVectors:
    """Vectors that are made again at each access."""

    count: int
    make: Callable[[int], Vector]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int, /) -> Vector:
        return self.make(number)


@dataclass(frozen=True)
class Similarity:
    """The similarity of clients: one symmetric matrix per stage, in the order of `clients`.

    An unmeasured pair is 0; the row of an unmeasured client is all 0, diagonal included.
    """

    clients: tuple[str, ...]
    stages: dict[str, Matrix]

    def updated(self, clients: Sequence[str], stages: dict[str, Matrix], keep: float = 0.0) -> Similarity:
        """Return the matrices with the pairs of `clients` updated; a share `keep` of an old value stays."""
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
        """Return the matrix of a stage for these clients, in this order; 0 for unknown clients."""
        out = np.zeros((len(clients), len(clients)))
        known = [i for i, k in enumerate(clients) if k in self.clients]
        if known and stage in self.stages:
            places = [self.clients.index(clients[i]) for i in known]
            out[np.ix_(known, known)] = self.stages[stage][np.ix_(places, places)]
        return out


def fits(count: int, size: int) -> bool:
    """True if `count` vectors of `size` fit into the memory budget."""
    return count * size <= HELD


def _rows(vectors: Vectors) -> list[slice]:
    """Yield blocks of clients of which two fit into memory; one block if all do."""
    count, size = len(vectors), len(vectors[0]) if len(vectors) else 0
    step = count if fits(count, size) else max(1, HELD // (2 * size))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)] if count else []


def _held(vectors: Vectors, rows: slice) -> list[Vector]:
    return [vectors[number] for number in range(rows.start, rows.stop)]


def _columns(spans: Sequence[slice], rows: int) -> Iterator[slice]:
    """Yield pieces of `spans`, so small that `rows` rows of them are one block."""
    step = max(256, BLOCK // rows)
    for span in spans:
        yield from (slice(start, min(start + step, span.stop)) for start in range(span.start, span.stop, step))


def _wide(vectors: Sequence[Vector], part: slice) -> Matrix:
    """Return some columns of the vectors, as clients by columns in float64."""
    block = np.empty((len(vectors), part.stop - part.start))
    for row, vector in zip(block, vectors, strict=True):
        row[:] = vector[part]
    return block


def _products(here: Sequence[Vector], there: Sequence[Vector], spans: Sequence[slice]) -> Matrix:
    """Return the inner products of all vectors `here` with all `there`, over the entries in `spans`."""
    out = np.zeros((len(here), len(there)))
    for part in _columns(spans, len(here)):
        one = _wide(here, part)
        out += one @ (one if there is here else _wide(there, part)).T
    return out


def cosines(vectors: Vectors, groups: Sequence[Sequence[slice]]) -> list[Matrix]:
    """Return the cosine of every pair over each group of spans: within -1..1, and 0 if a norm vanishes.

    >>> cosines([np.array([3, 0, 9], np.float32), np.array([3, 4, 0], np.float32)], [[slice(0, 2)]])
    [array([[1. , 0.6],
           [0.6, 1. ]])]
    """
    grams = [np.zeros((len(vectors), len(vectors))) for _ in groups]
    blocks = _rows(vectors)

    def fill(rows: slice, here: Sequence[Vector], columns: slice) -> None:
        there = here if columns == rows else _held(vectors, columns)
        for gram, spans in zip(grams, groups, strict=True):
            gram[rows, columns] = _products(here, there, spans)
            gram[columns, rows] = gram[rows, columns].T

    for number, rows in enumerate(blocks):
        here = _held(vectors, rows)
        for columns in blocks[number:]:
            fill(rows, here, columns)
    return [_normalised(gram) for gram in grams]


def _normalised(gram: Matrix) -> Matrix:
    norms = np.sqrt(np.diag(gram))
    there = norms >= TINY
    out = np.zeros_like(gram)
    np.divide(gram, np.outer(norms, norms), out=out, where=np.outer(there, there))
    out = np.clip((out + out.T) / 2, -1.0, 1.0)
    np.fill_diagonal(out, there.astype(np.float64))
    return out


def mixed_cosines(vectors: Vectors, stages: Mapping[str, Sequence[tuple[float, slice]]]) -> dict[str, Matrix]:
    """Return per stage the weighted mean of its tensors' cosines."""
    found = iter(cosines(vectors, [[span] for tensors in stages.values() for _, span in tensors]))
    nothing = np.zeros((len(vectors), len(vectors)))
    return {stage: sum((w * next(found) for w, _ in tensors), nothing) for stage, tensors in stages.items()}


def row_softmax(matrix: Matrix, positive: bool = False) -> Matrix:
    """exp(S_ij) / sum_m exp(S_im); with `positive` only over the entries above 0, and the diagonal."""
    powers = np.exp(matrix - matrix.max(1, keepdims=True))
    if positive:
        powers = np.where((matrix > 0) | np.eye(len(matrix), dtype=bool), powers, 0.0)
    shares: Matrix = powers / powers.sum(1, keepdims=True)
    return shares


def add_mixtures(onto: Sequence[Vector], mixtures: Sequence[tuple[Matrix, Sequence[slice]]], vectors: Vectors) -> None:
    """Add mixtures in place: onto_i += sum_j shares_ij vectors_j, within the spans of the shares.

    Each vector is made once; a block of clients is summed in float64, and rounded when it is added.
    """
    for rows in _rows(vectors):
        here = _held(vectors, rows)
        for shares, spans in mixtures:
            for part in _columns(spans, max(len(here), len(onto))):
                for vector, mixture in zip(onto, shares[:, rows] @ _wide(here, part), strict=True):
                    vector[part] = vector[part] + mixture


TINY = 1e-12
"""A vector with a smaller norm has no direction."""

_LEAST = TINY**2


def cosine(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors in float64: within -1..1, and 0 if a norm vanishes."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    return cosine_of(float((a * b).sum()), float((a * a).sum()), float((b * b).sum()))


@compiled
def cosine_of(product: float, one: float, other: float) -> float:
    """Return the cosine from the inner product and the two squared norms."""
    return max(-1.0, min(1.0, product / math.sqrt(one * other))) if min(one, other) >= _LEAST else 0.0
