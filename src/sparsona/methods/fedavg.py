"""FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017. The server's model goes out, trained models come back, their mean is the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import MergeRule, ServerState, averaged, received
from sparsona.methods._personal import NO_MEAN, LogitPrior, Own, Personal
from sparsona.methods._server import PLAIN_STEP, ServerStep
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedAvg(Method[ServerState, Own]):
    """One global model: the mean of the clients' models by their numbers of examples."""

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
        trained = local.train(received(down, local, self.logit_prior)).weights
        return self.personal.answer(state, trained, local, self.logit_prior)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        return averaged(server, arrivals, context, self.merge, self.server)

    def personal_model(self, state: Own, down: Message, local: Local) -> Vector:
        return self.personal.model(state.mean, received(down, local, self.logit_prior))
