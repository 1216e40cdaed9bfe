"""The growing similarity network of clients, from one sketch each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import paired_distances

from sparsona.message import Vector
from sparsona.method import ClientGraph

Edges: TypeAlias = npt.NDArray[np.int32]
Weights: TypeAlias = npt.NDArray[np.float32]
Table: TypeAlias = npt.NDArray[np.float32]
"""One row per client."""
Metric: TypeAlias = Literal["euclidean", "manhattan"]

BLOCK = 2**24
"""Distances held at a time: all of 4,096 clients."""


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph on the nodes 0..nodes-1: each edge once, as a row (i, j) with i < j, sorted."""

    nodes: int
    edges: Edges
    weights: Weights

    def neighbours(self, node: int) -> npt.NDArray[np.int32]:
        """Return the nodes that share an edge with `node`."""
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
    """
    nodes = len(sketches)
    if nodes < 2:
        return Graph(nodes, np.zeros((0, 2), np.int32), np.ones(0, np.float32))
    points = np.asarray(sketches, np.float64)
    nearest = _nearest(points, min(k, nodes - 1), metric)
    pairs = np.stack([np.repeat(np.arange(nodes), nearest.shape[1]), nearest.ravel()], axis=1)
    edges = np.unique(np.sort(pairs, axis=1), axis=0).astype(np.int32)
    weights = np.ones(len(edges))
    if weighted:
        lengths = paired_distances(points[edges[:, 0]], points[edges[:, 1]], metric=metric)
        weights = np.exp(-0.5 * (lengths / max(float(np.median(lengths)), 1e-12)) ** 2)
        weights /= weights.mean()
    return Graph(nodes, edges, weights.astype(np.float32))


def _nearest(points: npt.NDArray[np.float64], k: int, metric: Metric) -> npt.NDArray[np.intp]:
    """Return the `k` nearest others of each point, by blocks of rows; of equally near ones the first."""
    found = np.empty((len(points), k), np.intp)
    size = max(1, BLOCK // len(points))
    for first in range(0, len(points), size):
        rows = points if size >= len(points) else points[first : first + size]
        for node, row in enumerate(pairwise_distances(rows, points, metric=metric), first):
            row[node] = np.inf
            near = np.flatnonzero(row <= np.partition(row, k - 1)[k - 1])
            found[node] = near[np.argsort(row[near], kind="stable")[:k]]
    return found


@dataclass(frozen=True, eq=False)
class Network:
    """Clients in the order of joining, one row of `sketches` each, and their graph."""

    clients: tuple[str, ...]
    sketches: Table
    graph: Graph

    @classmethod
    def empty(cls, size: int) -> Network:
        """Return a network without clients, for sketches of `size` numbers."""
        none = np.zeros((0, size), np.float32)
        return cls((), none, knn_graph(none, 1))

    def row(self, client: str) -> int | None:
        """Return the row of a client, if it is known."""
        return self._rows.get(client)

    def rows(self, clients: Iterable[str]) -> list[int]:
        """Return the rows of these known clients."""
        return [self._rows[client] for client in clients]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {client: row for row, client in enumerate(self.clients)}

    def joined(self, news: Mapping[str, Vector], k: int, metric: Metric, weighted: bool) -> Network:
        """Return the network with new clients and their sketches, and a new graph."""
        if not news:
            return self
        sketches = np.concatenate([self.sketches, np.stack(list(news.values())).astype(np.float32)])
        return Network((*self.clients, *news), sketches, knn_graph(sketches, k, metric, weighted))

    def artefact(self) -> ClientGraph:
        """Return the network without its sketches, which stay on the server."""
        edges = tuple((int(i), int(j)) for i, j in self.graph.edges)
        return ClientGraph(self.clients, edges, tuple(float(w) for w in self.graph.weights))

    def rows_of(self, z: Table, first: Vector) -> Table:
        """Return `z` with a row per client: a new one is the mean of its neighbours' rows, or of all, or `first`."""
        old, rows = len(z), [z]
        if not old:
            return np.tile(first, (len(self.clients), 1)).astype(np.float32)
        for node in range(old, len(self.clients)):
            near = self.graph.neighbours(node)
            like = z[near[near < old]] if (near < old).any() else z
            rows.append(like.mean(0, keepdims=True))
        return np.concatenate(rows).astype(np.float32)
