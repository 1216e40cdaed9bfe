"""FedAvg without late models: the row "FedAvg (Sync)" of "Personalized Heterogeneous Federated Learning with Gradient
Similarity". A model that comes after its round is thrown away. In that row stragglers take part when they are not
delayed, which is a matter of the schedule (`straggling=absent`); where every reply of theirs is late, none counts."""

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
class FedAvgDrop(Method[ServerState, Own]):
    """FedAvg that throws late models away."""

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
        on_time = [a for a in arrivals if a.round == context.round]
        return averaged(server, on_time, context, self.merge, self.server) if on_time else server

    def personal_model(self, state: Own, down: Message, local: Local) -> Vector:
        return self.personal.model(state.mean, received(down, local, self.logit_prior))
