"""HeteroFL: Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous
Clients", ICLR 2021. Weak clients train a narrower net, the first channels of every layer; the server averages each
weight over those who have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from pydantic import Field

from sparsona.local import Local
from sparsona.message import Mask, Message, Positions, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Task, Turn
from sparsona.methods import METHODS
from sparsona.ops.masks import scatter
from sparsona.ops.widths import narrow, output_rows
from sparsona.slim.narrow import Narrow
from sparsona.vector import Layout

Rate = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Server:
    """The full-width model."""

    weights: Vector


@METHODS.add
@dataclass(frozen=True)
class HeteroFL(Method[Server, None]):
    """A share `full` of the clients trains the whole net, the others one of `rate` times its width.

    `scaler` divides the hidden layers' outputs by the width in training; `own_labels` leaves outputs that a client has
    no samples of out of its loss and its say in the head. Half the width is a quarter of the weights: 0.7071 is half.
    """

    rate: Rate = 0.7071
    full: Annotated[float, Field(ge=0, le=1)] = 0.1
    scaler: bool = True
    own_labels: bool = True

    def start_server(self, task: Task) -> Server:
        narrow(task.layout, self.rate)
        return Server(task.initial)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: Server, to: ClientId, turn: Turn) -> Message:
        return Message(weights=server.weights[self._mask(to, turn.task)])

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        mask, rate = self._mask(local.client, local.task), self._rate(local.client, local.task)
        labels = self._labels(local)
        factors = _factors(local.layout, rate if self.scaler else 1.0)
        start = self.personal(client, down, local)
        trained = local.train(start, mask=mask, companion=Narrow(mask, factors, labels)).weights
        reply = Message(weights=trained[mask], examples=local.examples)
        if labels is not None:
            reply = Message(**reply.parts, labels=Positions.of(labels))
        return Fit(None, reply, trained)

    def merge(self, server: Server, arrivals: Sequence[Arrival], turn: Turn) -> Server:
        layout = turn.task.layout
        total, holders = np.zeros(layout.size), np.zeros(layout.size, np.int32)
        for arrival in arrivals:
            mask, message = self._mask(arrival.client, turn.task), arrival.message
            values = scatter(mask, message.vector("weights", int(mask.sum())))
            if "labels" in message:
                mask = mask & output_rows(layout, message.positions("labels").mask())
            total[mask] += values[mask]
            holders += mask
        np.divide(total, holders, out=total, where=holders > 0)
        return Server(np.where(holders > 0, total, server.weights).astype(np.float32))

    def personal(self, client: None, down: Message, local: Local) -> Vector:
        mask = self._mask(local.client, local.task)
        return scatter(mask, down.vector("weights", int(mask.sum())))

    def _rate(self, client: ClientId, task: Task) -> float:
        order = task.chance.rng("widths").permutation(len(task.clients))
        strong = {task.clients[i] for i in order[: round(self.full * len(task.clients))]}
        return 1.0 if client in strong else self.rate

    def _mask(self, client: ClientId, task: Task) -> Mask:
        return _narrow(task.layout, self._rate(client, task))

    def _labels(self, local: Local) -> Mask | None:
        classes = local.task.classes
        return np.bincount(local.targets(), minlength=classes) > 0 if self.own_labels and classes else None


_narrow = lru_cache(maxsize=16)(narrow)


def _factors(layout: Layout, rate: float) -> Vector:
    """1 / rate for the hidden layers, 1 for the head."""
    out = np.ones(layout.trainable, np.float32)
    for tensor in layout.parameters:
        if tensor.name.rpartition(".")[0] != layout.layers[-1]:
            out[tensor.slice] = 1 / rate
    return out
