"""HeteroFL: Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous
Clients", ICLR 2021. Weak clients train a narrower net, the first channels of every layer; the server averages each
weight over those who have it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from sparsona.message import Mask, Message, Positions, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods.heterofl.widths import Narrow, narrow, output_rows
from sparsona.ops.masks import scatter
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The full-width model."""

    weights: Vector


@METHODS.add
@dataclass(frozen=True)
class HeteroFL(Method[ServerState, None]):
    """Weak clients train a narrower network, whose weights are a part of the global network's.

    A network of half the width has a quarter of the weights; width 0.7071 has half of them.
    """

    no_budget: ClassVar[str] = "heterofl trains through a weight transform, which gives no gradient of one row"

    rate: float = option(0.7071, "width of a weak client's network", gt=0, le=1)
    full: float = option(0.1, "share of clients that train the whole network", ge=0, le=1)
    scaler: bool = option(True, "divide the outputs of hidden layers by the width")
    own_labels: bool = option(True, "a client trains and averages only the outputs of labels that it has")
    test_labels: Literal["own", "all"] = option(
        "own", "predict only labels that the client has, as the authors do (no other method may), or all"
    )

    def start_server(self, task: Task) -> ServerState:
        narrow(task.layout, self.rate)
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights[self._mask(to, context.task)])

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        mask, labels = self._mask(local.client, local.task), self._labels(local)
        narrowed = Narrow(mask, self._factors(local), labels)
        trained = local.train(self._received(down, local), mask=mask, transform=narrowed).weights
        reply = Message(weights=trained[mask], examples=local.examples)
        if labels is not None:
            reply = Message(**reply.parts, labels=Positions.of(labels))
        return Fit(None, reply, self._used(trained, local))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout = context.task.layout
        total, holders = np.zeros(layout.size), np.zeros(layout.size, np.int32)
        for arrival in arrivals:
            mask, message = self._mask(arrival.client, context.task), arrival.message
            values = scatter(mask, message.vector("weights", int(mask.sum())))
            if "labels" in message:
                mask = mask & output_rows(layout, message.positions("labels").mask())
            total[mask] += values[mask]
            holders += mask
        np.divide(total, holders, out=total, where=holders > 0)
        return ServerState(np.where(holders > 0, total, server.weights).astype(np.float32))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return self._used(self._received(down, local), local)

    def _received(self, down: Message, local: Local) -> Vector:
        mask = self._mask(local.client, local.task)
        return scatter(mask, down.vector("weights", int(mask.sum())))

    def _used(self, weights: Vector, local: Local) -> Vector:
        """Return the tested weights: scaled, and without weights that lead to other clients' labels."""
        out, labels = weights * self._factors(local), self._labels(local)
        return out if labels is None or self.test_labels == "all" else out * output_rows(local.layout, labels)

    def _rate(self, client: ClientId, task: Task) -> float:
        order = task.chance.rng("widths").permutation(len(task.clients))
        strong = {task.clients[i] for i in order[: round(self.full * len(task.clients))]}
        return 1.0 if client in strong else self.rate

    def _mask(self, client: ClientId, task: Task) -> Mask:
        return _narrow(task.layout, self._rate(client, task))

    def _labels(self, local: Local) -> Mask | None:
        classes = local.task.classes
        return np.bincount(local.countable_targets(), minlength=classes) > 0 if self.own_labels and classes else None

    def _factors(self, local: Local) -> Vector:
        """Return 1 / rate for the hidden layers, 1 for the head."""
        rate = self._rate(local.client, local.task) if self.scaler else 1.0
        out = np.ones(local.layout.size, np.float32)
        for tensor in local.layout.tensors:
            if tensor.name.rpartition(".")[0] != local.layout.layers[-1]:
                out[tensor.slice] = 1 / rate
        return out


_narrow = lru_cache(maxsize=16)(narrow)
