"""The growing similarity network: known clients, their sketches, and their graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sparsona.message import Vector
from sparsona.method import ClientGraph
from sparsona.methods.pfednet.graph import Graph, Metric, Table, knn_graph


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
        """Return the network with new clients and their sketches, and a new graph.

        >>> network = Network.empty(1).joined({"a": np.zeros(1), "b": np.ones(1)}, 1, "euclidean", False)
        >>> network.clients, network.graph.edges.tolist()
        (('a', 'b'), [[0, 1]])
        """
        if not news:
            return self
        sketches = np.concatenate([self.sketches, np.stack(list(news.values())).astype(np.float32)])
        return Network((*self.clients, *news), sketches, knn_graph(sketches, k, metric, weighted))

    def artefact(self) -> ClientGraph:
        """Return the network without its sketches, which stay on the server."""
        edges = tuple((int(i), int(j)) for i, j in self.graph.edges)
        return ClientGraph(self.clients, edges, tuple(float(w) for w in self.graph.weights))

    def rows_of(self, z: Table, first: Vector) -> Table:
        """Return `z` with a row per client: a new one is the mean of its neighbours' rows, or of all, or `first`.

        >>> network = Network.empty(1).joined({"a": np.zeros(1), "b": np.ones(1)}, 1, "euclidean", False)
        >>> network.rows_of(np.array([[5, 7]], np.float32), np.zeros(2, np.float32))
        array([[5., 7.],
               [5., 7.]], dtype=float32)
        """
        old, rows = len(z), [z]
        if not old:
            return np.tile(first, (len(self.clients), 1)).astype(np.float32)
        for node in range(old, len(self.clients)):
            near = self.graph.neighbours(node)
            like = z[near[near < old]] if (near < old).any() else z
            rows.append(like.mean(0, keepdims=True))
        return np.concatenate(rows).astype(np.float32)
