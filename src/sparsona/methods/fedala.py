"""FedALA: Zhang, Hua, Wang, Song, Xue, Ma, Guan, "FedALA: Adaptive Local Aggregation for Personalized Federated
Learning", AAAI 2023. FedAvg; a client starts from its old model plus W times the way to the global one, and learns in
which places of the last layers the global one helps (W in 0..1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import averaged, received
from sparsona.ops.parts import last_layers
from sparsona.ops.robust import MergeRule
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors


@dataclass(frozen=True)
class ClientState:
    """The model that the client trained last, and its weights W of the global one."""

    old: Vector | None = None
    weights: Vector | None = None


@METHODS.add
@dataclass(frozen=True)
class FedALA(Method[ServerState, ClientState]):
    """FedAvg whose clients learn, entry by entry in the last layers, how much of the global model to take."""

    private: ClassVar[tuple[str, ...]] = ("weights",)

    layers: int = option(1, "number of last layers with learnt weights W (at most all but the first)", ge=1)
    ala_steps: int = option(1, "steps on W per round", ge=1)
    ala_first: int = option(10, "steps on W in a client's first round", ge=1)
    ala_lr: float = option(1.0, "learning rate of W", gt=0)
    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState()

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start, weights = self._aggregated(state, down, local)
        trained = local.train(start).weights
        reply = Message(weights=trained, examples=local.examples)
        return Fit(ClientState(trained, weights), reply, trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        return averaged(server, arrivals, context, self.merge, self.server)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return self._aggregated(state, down, local)[0]

    def _aggregated(self, state: ClientState, down: Message, local: Local) -> tuple[Vector, Vector | None]:
        """old + W (global - old), with W after its steps along the gradient; the global model in the first round."""
        shared = received(down, local)
        if state.old is None:
            return shared, None
        old, rate = state.old, np.float32(self.ala_lr)
        places = last_layers(local.layout, min(self.layers, len(local.layout.layers) - 1))
        way = np.where(places, shared - old, np.float32(0))
        base = np.where(places, old, shared)
        first = state.weights is None
        begin = np.ones_like(shared) if state.weights is None else state.weights

        def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
            (w,) = vectors
            return (np.clip(w - rate * batches[0].gradient(base + w * way) * way, 0, 1),)

        config = replace(local.config, steps=self.ala_first if first else self.ala_steps, repeats=1)
        (weights,) = local.iterate((begin,), step, config, stream="ala")
        return base + weights * way, weights
