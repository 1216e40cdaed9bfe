"""FedAvg without late models: the row "FedAvg (Sync)" of "Personalized Heterogeneous Federated Learning with Gradient
Similarity". A model that comes after its round is thrown away. In that row stragglers take part when they are not
delayed, which is a matter of the schedule (`straggling=absent`); where every reply of theirs is late, none counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import MergeRule, ServerState, mean_weights, received
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedAvgDrop(Method[ServerState, None]):
    """FedAvg that throws late models away."""

    merge: MergeRule = "mean"

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        on_time = [a for a in arrivals if a.round == context.round]
        return ServerState(mean_weights(on_time, context, self.merge)) if on_time else server

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return received(down, local)
