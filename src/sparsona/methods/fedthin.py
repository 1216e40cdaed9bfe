"""FedThin: one shared model over a thin channel, and a personal one that never travels. Clients send the largest
entries of their updates as powers of two, the server moves by their element-wise mean with momentum and broadcasts its
step likewise, and both sides keep what was not sent for later. A client uses the running mean of its trained models.

Three things keep the channel from running away: momentum is cleared where an entry was broadcast (Lin and others, "Deep
Gradient Compression", ICLR 2018), no step is longer than two median replies, and a client's residual is reduced where
the others have already moved the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sparsona.layout import Layout
from sparsona.message import Message, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import still_wanted, trained_with
from sparsona.ops.mean import MergeRule, elementwise_merged
from sparsona.ops.moments import EMPTY, Moments
from sparsona.ops.server import ServerStep
from sparsona.ops.sparse import Values, rounded, top_supports, with_added, without
from sparsona.options import option
from sparsona.training.local import Local

FINEST = 2.0**-18
"""Smaller steps of a weight are kept for later. So sums of steps are exact in float32, for clients that missed some."""
LONGEST = 2.0
"""The longest step in median replies, times `server.lr`. More than 1: the largest entries of replies lie apart."""


@dataclass(frozen=True)
class ServerState:
    """The model's movement from its start, the residual of the broadcast, and the momentum."""

    moved: Vector
    residual: Vector
    moments: Moments = EMPTY


@dataclass(frozen=True)
class ClientState:
    """The residual, and the model's movement by the client's last reply alone."""

    residual: Vector
    seen: Vector


@METHODS.add
@dataclass(frozen=True)
class FedThin(Method[ServerState, ClientState]):
    """One global model over a thin channel both ways, and a running mean of its models on each client."""

    feedback: ClassVar[str] = "residual"
    average: ClassVar[float] = 0.7

    density: float = option(0.2, "share of each tensor's entries that is sent each way", gt=0, le=1)
    values: Values = "pow2"
    merge: MergeRule = "mean"
    server: ServerStep = ServerStep(momentum=0.5)  # noqa: RUF009

    def start_server(self, task: Task) -> ServerState:
        return ServerState(np.zeros_like(task.initial), np.zeros_like(task.initial))

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(np.zeros_like(task.initial), np.zeros_like(task.initial))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(moved=server.moved)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start, moved = self.personal_model(state, down, local), down.vector("moved", local.layout.size)
        learnt = trained_with(still_wanted(state.residual, moved - state.seen), start, local)
        if learnt is None:
            return Fit(state, Message(), start)
        trained, wanted = learnt
        sent = self._thinned(wanted, local.layout)
        reply = Message(update=sent, examples=local.examples)
        state = ClientState(without(wanted, sent), with_added(moved, sent))
        return Fit(state, reply, trained.weights, if_lost=ClientState(wanted, moved))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout, norms = context.task.layout, list[float]()

        def weighed(arrival: Arrival) -> tuple[int, Sparse]:
            update = arrival.message.sparse("update", layout.size)
            norms.append(float(np.linalg.norm(update.values.astype(np.float64))))
            return arrival.message.examples(), update

        mean = elementwise_merged(self.merge, layout.size, map(weighed, arrivals))
        step, moments = self.server.direction(mean, server.moments)
        wanted = server.residual + _shortened(step, LONGEST * self.server.lr * float(np.median(norms)))
        sent = self._thinned(np.where(np.abs(wanted) < FINEST, np.float32(0), wanted), layout)
        return ServerState(server.moved + sent.dense(), without(wanted, sent), _cleared(moments, sent))

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return local.task.initial + down.vector("moved", local.layout.size)

    def _thinned(self, wanted: Vector, layout: Layout) -> Sparse:
        places = top_supports(wanted, layout.spans("tensor"), 1 - self.density)
        return rounded(Sparse.take(wanted, places), layout.lengths, self.values)


def _cleared(moments: Moments, sent: Sparse) -> Moments:
    """Clear the momentum of broadcast entries."""
    first = moments.first.copy()
    if len(first):
        first[sent.indices] = 0
    return replace(moments, first=first)


def _shortened(step: Vector, longest: float) -> Vector:
    """Return the step, scaled down to a norm of `longest` if it is longer."""
    norm = float(np.linalg.norm(step.astype(np.float64)))
    return step if norm <= longest else np.float32(longest / norm) * step
