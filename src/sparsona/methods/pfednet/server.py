"""pFedNet's server state, and its steps."""

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
"""Maps Z, the graph and ADMM's state as `start` to a new Z and state."""


@dataclass(frozen=True)
class ServerState:
    """The network, x, Z (one row per client), and ADMM's state (one row per edge). `still`: nothing has moved yet."""

    network: Network
    x: Vector
    z: Table
    admm: Table
    still: bool = True

    def joined(
        self, news: Mapping[ClientId, Vector], k: int, metric: Metric, weighted: bool, first: Vector
    ) -> ServerState:
        """Return the state with new clients and sketches, a new graph and a fresh ADMM; `first` is the first z."""
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
        """Return the state after a step of x by `eta` and of Z's rows by `own` along the weighted updates.

        Without updates, nothing moves."""
        if not replies:
            return self
        weight = np.array([count for count, _ in replies.values()], np.float32)
        g = np.stack([update for _, update in replies.values()]) * (weight / weight.mean())[:, None]
        moved = self.z.copy()
        moved[self.network.rows(replies)] -= np.float32(own) * g[:, mixture.own]
        z, admm = prox(moved, self.network.graph, start=self.admm)
        return ServerState(self.network, self.x - np.float32(eta) * g[:, mixture.shared].mean(0), z, admm, still=False)
