"""EF21: Richtarik, Sokolov, Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error
Feedback", NeurIPS 2021, under FedAvg. Both sides keep an estimate g_k of each client's update; a client sends the
largest entries of what its update differs from it, and the server moves by the mean of all estimates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsona.message import Message, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import trained_with
from sparsona.methods.averaging import received
from sparsona.ops.mean import elementwise_mean
from sparsona.ops.moments import EMPTY, Moments
from sparsona.ops.server import PLAIN_STEP, ServerStep
from sparsona.ops.sparse import Values, rounded, top_supports
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The global model, the mean of the clients' estimates, and what the server's step remembers."""

    weights: Vector
    estimate: Vector
    moments: Moments = EMPTY


@dataclass(frozen=True)
class ClientState:
    """The estimate g_k of the client's update."""

    estimate: Vector


@METHODS.add
@dataclass(frozen=True)
class EF21(Method[ServerState, ClientState]):
    """FedAvg on estimates of the clients' updates; each client sends top-k corrections to its estimate."""

    density: float = option(0.1, "share of each tensor's entries in a correction", gt=0, le=1)
    values: Values = "float32"
    server: ServerStep = PLAIN_STEP

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, np.zeros_like(task.initial))

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(np.zeros_like(task.initial))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start, layout = received(down, local), local.layout
        learnt = trained_with(-state.estimate, start, local)
        if learnt is None:
            return Fit(state, Message(), start)
        trained, wrong = learnt
        taken = Sparse.take(wrong, top_supports(wrong, layout.spans("tensor"), 1 - self.density))
        sent = rounded(taken, layout.lengths, self.values)
        new, reply = ClientState(state.estimate + sent.dense()), Message(correction=sent, examples=local.examples)
        return Fit(new, reply, trained.weights, if_lost=state)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size, share = context.task.layout.size, np.float32(len(arrivals) / len(context.task.clients))
        corrections = ((1.0, a.message.sparse("correction", size)) for a in arrivals)
        estimate = server.estimate + share * elementwise_mean(size, corrections, absent=True)
        way, moments = self.server.direction(estimate, server.moments)
        return ServerState(server.weights + way, estimate, moments)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return received(down, local)
