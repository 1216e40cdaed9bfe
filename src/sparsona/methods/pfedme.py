"""pFedMe: Dinh, Tran, Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020. A client's model
theta_k minimises f_k(theta) + lambda/2 |theta - w_k|^2; its w_k follows theta_k, and the server averages the w_k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import mean_weights, received
from sparsona.ops.robust import MergeRule
from sparsona.ops.server import ServerState
from sparsona.training.job import Proximal
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Step, Vectors

Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class ClientState:
    """theta_k; empty before the first training."""

    theta: Vector


@METHODS.add
@dataclass(frozen=True)
class PFedMe(Method[ServerState, ClientState]):
    """A personal model that a spring holds near the global one.

    `lambda_` is the strength of the spring. `inner` is the number of steps of the personal model on every batch. `eta`
    is the step of w_k towards the personal model (the learning rate, at most 1/lambda, where not given). `eta_p` is the
    step of the personal model (the learning rate, at most 1/(2 lambda), where not given). Its function is curved by
    lambda more than the loss, and twice that step overshoots where the loss is curved as much. `mu` is the weight decay
    of the personal model. `beta` is how far the server goes to the mean. `variant` fedem is FedEM's simplified form: a
    client's own model, pulled to the mean of all.
    """

    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    lambda_: Positive = 15.0
    inner: Annotated[int, Field(ge=1)] = 5
    eta: Positive | None = None
    eta_p: Positive | None = None
    mu: Annotated[float, Field(ge=0)] = 0.001
    beta: Positive = 1.0
    variant: Literal["paper", "fedem"] = "paper"

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
        mean = mean_weights(arrivals, context, self.merge)
        if self.beta == 1.0:
            return ServerState(mean)
        return ServerState(np.float32(1 - self.beta) * server.weights + np.float32(self.beta) * mean)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return state.theta if len(state.theta) else received(down, local)
