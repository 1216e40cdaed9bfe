"""The similarity network of clients, from one sketch each."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import paired_distances

Edges: TypeAlias = npt.NDArray[np.int32]
Weights: TypeAlias = npt.NDArray[np.float32]
Table: TypeAlias = npt.NDArray[np.float32]
"""One row per client."""
Metric: TypeAlias = Literal["euclidean", "manhattan"]
Places: TypeAlias = npt.NDArray[np.intp]

WHOLE = 4096
"""Limit of nodes for one distance matrix; beyond, it is made in blocks of rows."""
BLOCK = 2**22
"""Distances per block."""


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph on the nodes 0..nodes-1: each edge once, as a row (i, j) with i < j, sorted."""

    nodes: int
    edges: Edges
    weights: Weights

    def neighbours(self, node: int) -> npt.NDArray[np.int32]:
        """
        >>> knn_graph(np.array([[0.0], [1.0], [5.0]]), 1).neighbours(1)
        array([0, 2], dtype=int32)
        """
        i, j = self.edges.T
        return np.concatenate([i[j == node], j[i == node]])

    def incidence(self) -> Any:
        """Return the sparse matrix Q, nodes by edges: +1 at i and -1 at j in the column of each edge.

        >>> knn_graph(np.array([[0.0], [1.0], [5.0]]), 1).incidence().toarray()
        array([[ 1.,  0.],
               [-1.,  1.],
               [ 0., -1.]])
        """
        count = len(self.edges)
        columns = np.repeat(np.arange(count), 2)
        return sparse.csc_array((np.tile([1.0, -1.0], count), (self.edges.ravel(), columns)), (self.nodes, count))


def knn_graph(sketches: npt.NDArray[Any], k: int, metric: Metric = "euclidean", weighted: bool = False) -> Graph:
    """Return the graph with an edge if one node is among the `k` nearest of the other.

    Of equally near nodes the first count. The weights are all 1, or with `weighted` exp(-d^2 / 2s^2) of the distance d,
    s being the median distance, scaled to a mean of 1.

    >>> knn_graph(np.array([[0.0], [1.0], [5.0], [7.0]]), 1).edges.tolist()
    [[0, 1], [2, 3]]
    """
    nodes = len(sketches)
    if nodes < 2:
        return Graph(nodes, np.zeros((0, 2), np.int32), np.ones(0, np.float32))
    points = np.asarray(sketches, np.float64)
    find = _nearest if nodes <= WHOLE else _nearest_in_blocks
    nearest = find(points, min(k, nodes - 1), metric)
    pairs = np.stack([np.repeat(np.arange(nodes), nearest.shape[1]), nearest.ravel()], axis=1)
    edges = np.unique(np.sort(pairs, axis=1), axis=0).astype(np.int32)
    weights = np.ones(len(edges))
    if weighted:
        lengths = paired_distances(points[edges[:, 0]], points[edges[:, 1]], metric=metric)
        weights = np.exp(-0.5 * (lengths / max(float(np.median(lengths)), 1e-12)) ** 2)
        weights /= weights.mean()
    return Graph(nodes, edges, weights.astype(np.float32))


def _nearest(points: npt.NDArray[np.float64], k: int, metric: Metric) -> Places:
    """Return the `k` nearest others of each point."""
    distances = pairwise_distances(points, metric=metric)
    np.fill_diagonal(distances, np.inf)
    found: Places = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return found


def _nearest_in_blocks(points: npt.NDArray[np.float64], k: int, metric: Metric) -> Places:
    """Return the same for many points; equal points have equal neighbours and are searched once.

    >>> points = np.random.default_rng(0).integers(0, 4, (200, 3)).astype(np.float64)
    >>> bool((_nearest(points, 5, "manhattan") == _nearest_in_blocks(points, 5, "manhattan")).all())
    True
    """
    places, at = np.unique(points, axis=0, return_inverse=True)
    by_place = np.argsort(at, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(at))])
    found = np.empty((len(points), k), np.intp)
    size = max(1, BLOCK // len(places))
    for first in range(0, len(places), size):
        distances = pairwise_distances(places[first : first + size], places, metric=metric)
        for place, row in enumerate(distances, first):
            row[place] = 0
            reach = np.partition(row, k)[k] if k < len(places) else np.inf
            near = np.flatnonzero(row <= reach)  # k + 1 places have as many points at least
            some = np.concatenate([by_place[starts[p] : min(starts[p + 1], starts[p] + k + 1)] for p in near])
            some = some[np.lexsort((some, row[at[some]]))][: k + 1]
            for node in by_place[starts[place] : starts[place + 1]]:
                found[node] = some[some != node][:k]
    return found
