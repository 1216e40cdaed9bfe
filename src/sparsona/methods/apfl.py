"""APFL: Deng, Kamani, Mahdavi, "Adaptive Personalized Federated Learning", 2020. FedAvg; beside it each client trains
a model v of its own through the mixture alpha v + (1 - alpha) w with the shared model w, and uses the mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import averaged, received
from sparsona.ops.robust import MergeRule
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors


@dataclass(frozen=True)
class ClientState:
    """The client's own model v, and its share alpha of the mixture."""

    own: Vector
    alpha: float


@METHODS.add
@dataclass(frozen=True)
class APFL(Method[ServerState, ClientState]):
    """FedAvg plus one own model per client, used as a mixture with the global model."""

    private: ClassVar[tuple[str, ...]] = ("own",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    alpha: float = option(0.5, "share of the client's own model in the mixture", ge=0, le=1)
    adaptive: bool = option(True, "each client adapts its alpha by one gradient step per round, within 0 and 1")
    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial, self.alpha)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start, rate = received(down, local), np.float32(local.rate)
        alpha = self._moved_share(state, start, local) if self.adaptive else state.alpha
        share = np.float32(alpha)

        def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
            w, v = vectors
            mixed = batches[0].gradient(_mixture(v, w, alpha))
            return w - rate * batches[0].gradient(w), v - rate * share * mixed

        w, v = local.iterate((start, state.own), step)
        reply = Message(weights=w, examples=local.examples)
        return Fit(ClientState(v, alpha), reply, _mixture(v, w, alpha))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        return averaged(server, arrivals, context, self.merge, self.server)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return _mixture(state.own, received(down, local), state.alpha)

    def _moved_share(self, state: ClientState, w: Vector, local: Local) -> float:
        """alpha <- alpha - rate <v - w, grad f(mixture)>, on one batch."""
        slope = local.gradient(_mixture(state.own, w, state.alpha), batch=local.config.batch)
        return float(np.clip(state.alpha - local.rate * float(np.dot(state.own - w, slope)), 0, 1))


def _mixture(own: Vector, shared: Vector, alpha: float) -> Vector:
    out: Vector = np.float32(alpha) * own + np.float32(1 - alpha) * shared
    return out
