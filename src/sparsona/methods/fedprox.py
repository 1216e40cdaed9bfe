"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys
2020. FedAvg whose clients are held near the global model by mu/2 |w - w_global|^2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import MergeRule, ServerState, averaged, received
from sparsona.methods._personal import NO_MEAN, LogitPrior, Own, Personal
from sparsona.methods._server import PLAIN_STEP, ServerStep
from sparsona.training.job import Proximal
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedProx(Method[ServerState, Own]):
    """FedAvg with a proximal term in the local loss.

    `mu` is the strength of the term; mu = 0 is FedAvg.
    """

    mu: Annotated[float, Field(ge=0)] = 0.1
    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP
    personal: Personal = NO_MEAN
    logit_prior: LogitPrior = False

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> Own:
        return Own()

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: Own, down: Message, local: Local) -> Fit[Own]:
        start = received(down, local, self.logit_prior)
        trained = local.train(start, proximal=Proximal(start, self.mu) if self.mu else None).weights
        return self.personal.answer(state, trained, local, self.logit_prior)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        return averaged(server, arrivals, context, self.merge, self.server)

    def personal_model(self, state: Own, down: Message, local: Local) -> Vector:
        return self.personal.model(state.mean, received(down, local, self.logit_prior))
