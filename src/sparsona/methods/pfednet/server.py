"""What pFedNet's server holds, and how updates move it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from sparsona.message import Vector
from sparsona.method import ClientId
from sparsona.methods.pfednet.graph import Metric, Table
from sparsona.methods.pfednet.mixture import ComponentMixture
from sparsona.methods.pfednet.network import Network

Prox: TypeAlias = Callable[..., tuple[Table, Table]]
"""Z, the graph and, as `start`, where ADMM stood give a new Z, and where it stands now."""


@dataclass(frozen=True)
class ServerState:
    """Who is like whom, x, Z (a row a client), and where ADMM stood (a row an edge). `still`: nothing has moved yet."""

    network: Network
    x: Vector
    z: Table
    admm: Table
    still: bool = True

    def joined(
        self, news: Mapping[ClientId, Vector], k: int, metric: Metric, weighted: bool, first: Vector
    ) -> ServerState:
        """With new clients and their sketches: the graph is made anew, and ADMM starts anew. `first` is the first z."""
        network = self.network.joined(news, k, metric, weighted)
        admm = self.admm[:0] if news else self.admm
        return replace(self, network=network, z=network.rows_of(self.z, first), admm=admm)

    def stepped(
        self,
        replies: Mapping[ClientId, tuple[int, Vector]],
        mixture: ComponentMixture,
        eta: float,
        own: float,
        prox: Prox,
    ) -> ServerState:
        """After a step of x by `eta`, and of the rows of Z by `own`, along updates that count by their weights. Where
        there are none, nothing moves."""
        if not replies:
            return self
        weight = np.array([count for count, _ in replies.values()], np.float32)
        g = np.stack([update for _, update in replies.values()]) * (weight / weight.mean())[:, None]
        moved = self.z.copy()
        moved[self.network.rows(replies)] -= np.float32(own) * g[:, mixture.own]
        z, admm = prox(moved, self.network.graph, start=self.admm)
        return ServerState(self.network, self.x - np.float32(eta) * g[:, mixture.shared].mean(0), z, admm, still=False)
