"""SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", ICML 2020. FedAvg whose local steps are corrected by c - c_i: the mean drift of all clients less the own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import received
from sparsona.ops.mean import weighted_mean
from sparsona.ops.moments import EMPTY, Moments
from sparsona.ops.server import PLAIN_STEP, ServerStep
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors


@dataclass(frozen=True)
class ServerState:
    """The global model x, the control variate c, and what the server's step remembers."""

    weights: Vector
    control: Vector
    moments: Moments = EMPTY


@dataclass(frozen=True)
class ClientState:
    """The client's control variate c_i."""

    control: Vector


@METHODS.add
@dataclass(frozen=True)
class Scaffold(Method[ServerState, ClientState]):
    """FedAvg with control variates against client drift; all models weigh the same.

    The variant is the authors' option II: c_i becomes the mean gradient of the client's last local steps.
    """

    server: ServerStep = PLAIN_STEP

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, np.zeros_like(task.initial))

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(np.zeros_like(task.initial))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights, control=server.control)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start, rate = received(down, local), np.float32(local.rate)
        shared = down.vector("control", local.layout.size)
        correction: Vector = shared - state.control
        steps = 0

        def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
            nonlocal steps
            steps += 1
            corrected: Vector = batches[0].gradient(vectors[0]) + correction
            return (vectors[0] - rate * corrected,)

        (trained,) = local.iterate((start,), step)
        control: Vector = (start - trained) / (max(steps, 1) * rate) - correction
        reply = Message(weights=trained, control=control - state.control)
        return Fit(ClientState(control), reply, trained, if_lost=state)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size, share = context.task.layout.size, np.float32(len(arrivals) / len(context.task.clients))
        mean = weighted_mean((1, a.message.vector("weights", size)) for a in arrivals)
        control = weighted_mean((1, a.message.vector("control", size)) for a in arrivals)
        way, moments = self.server.direction(mean - server.weights, server.moments)
        return ServerState(server.weights + way, server.control + share * control, moments)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return received(down, local)

    def max_numbers(self, task: Task) -> int:
        return 3 * task.layout.size + 4096
