"""FedThin: one shared model over a thin channel, and a personal one that never travels. Clients send the largest
entries of their updates as powers of two, the server moves by their element-wise mean with momentum and broadcasts its
step likewise, and both sides keep what was not sent for later. A client uses the running mean of its trained models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparsona.layout import Layout
from sparsona.message import Message, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import trained_with
from sparsona.ops.elementwise import elementwise_mean
from sparsona.ops.moments import EMPTY, Moments
from sparsona.ops.packed import without
from sparsona.ops.rounding import Values, rounded
from sparsona.ops.server import ServerStep
from sparsona.ops.topk import top_supports
from sparsona.options import option
from sparsona.training.local import Local

FINEST = 2.0**-18
"""Smaller steps of a weight wait. So sums of steps are exact in float32: a client that missed some gets their sum."""


@dataclass(frozen=True)
class ServerState:
    """How far the model has moved from its start, what was not broadcast yet, and the momentum."""

    moved: Vector
    residual: Vector
    moments: Moments = EMPTY


@dataclass(frozen=True)
class ClientState:
    """What was not sent yet."""

    residual: Vector


@METHODS.add
@dataclass(frozen=True)
class FedThin(Method[ServerState, ClientState]):
    """One global model over a thin channel both ways, and a running mean of its models on each client."""

    feedback: ClassVar[str] = "residual"
    average: ClassVar[float] = 0.7

    density: float = option(0.2, "share of each tensor's entries that is sent each way", gt=0, le=1)
    values: Values = "pow2"
    server: ServerStep = ServerStep(momentum=0.5)  # noqa: RUF009

    def start_server(self, task: Task) -> ServerState:
        return ServerState(np.zeros_like(task.initial), np.zeros_like(task.initial))

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(np.zeros_like(task.initial))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(moved=server.moved)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start = self.personal_model(state, down, local)
        learnt = trained_with(state.residual, start, local)
        if learnt is None:
            return Fit(state, Message(), start)
        trained, wanted = learnt
        sent = self._thinned(wanted, local.layout)
        reply = Message(update=sent, examples=local.examples)
        return Fit(ClientState(without(wanted, sent)), reply, trained.weights, if_lost=ClientState(wanted))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout = context.task.layout
        replies = ((a.message.examples(), a.message.sparse("update", layout.size)) for a in arrivals)
        step, moments = self.server.direction(elementwise_mean(layout.size, replies), server.moments)
        wanted = server.residual + step
        sent = self._thinned(np.where(np.abs(wanted) < FINEST, np.float32(0), wanted), layout)
        return ServerState(server.moved + sent.dense(), without(wanted, sent), moments)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return local.task.initial + down.vector("moved", local.layout.size)

    def _thinned(self, wanted: Vector, layout: Layout) -> Sparse:
        places = top_supports(wanted, layout.spans("tensor"), 1 - self.density)
        return rounded(Sparse.take(wanted, places), layout.lengths, self.values)
