"""pFedMe: Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020. A client's model
theta_k minimises f_k(theta) + lambda/2 |theta - w_k|^2; its w_k follows theta_k, and the server averages the w_k."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import mean_weights, received
from sparsona.ops.mean import MergeRule
from sparsona.ops.server import ServerState
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Step, Vectors
from sparsona.training.step import Proximal


@dataclass(frozen=True)
class ClientState:
    """theta_k; empty before the first training."""

    theta: Vector


@METHODS.add
@dataclass(frozen=True)
class PFedMe(Method[ServerState, ClientState]):
    """One personal model per client, which a Moreau envelope keeps near the global model."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    lambda_: float = option(15.0, "strength of the pull towards the global model", gt=0)
    inner: int = option(5, "steps of the personal model per batch", ge=1)
    eta: float | None = option(None, "step of w_k towards the personal model (not given: min(lr, 1/lambda))", gt=0)
    # Half of 1/lambda: the inner function is curved by lambda more than the loss, and a longer step may overshoot.
    eta_p: float | None = option(None, "step of the personal model (not given: min(lr, 1/(2 lambda)))", gt=0)
    mu: float = option(0.001, "weight decay of the personal model", ge=0)
    beta: float = option(1.0, "step of the server towards the mean", gt=0)
    variant: Literal["paper", "fedem"] = option(
        "paper", "fedem: FedEM's simplified form, one own model per client, pulled towards the mean"
    )
    merge: MergeRule = "mean"

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(np.zeros(0, np.float32))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        w = received(down, local)
        if self.variant == "fedem":
            config, pull = replace(local.config, momentum=0.0), Proximal(w, self.lambda_)
            theta = sent = local.train(self.personal_model(state, down, local), config, proximal=pull).weights
        else:
            theta, sent = local.iterate((w, w), self._step(local))
        return Fit(ClientState(theta), Message(weights=sent, examples=local.examples), theta)

    def _step(self, local: Local) -> Step:
        eta = self.eta or min(local.rate, 1 / self.lambda_)
        eta_p = np.float32(self.eta_p or min(local.rate, 1 / (2 * self.lambda_)))
        pull, mu, follow = np.float32(self.lambda_), np.float32(self.mu), np.float32(eta * self.lambda_)

        def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
            theta, w = vectors
            for _ in range(self.inner):
                theta = theta - eta_p * (batches[0].gradient(theta) + pull * (theta - w) + mu * theta)
            return theta, w - follow * (w - theta)

        return step

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        mean = mean_weights(server.weights, arrivals, self.merge)
        if self.beta == 1.0:
            return ServerState(mean)
        return ServerState(np.float32(1 - self.beta) * server.weights + np.float32(self.beta) * mean)

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps() * (self.inner if self.variant == "paper" else 1))

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return state.theta if len(state.theta) else received(down, local)
