"""FedAvg with stale models: the row "FedAvg (Async)" of "Personalized Heterogeneous Federated Learning with Gradient
Similarity". Whatever arrives in a round is averaged, from whichever model it started; FedAvg in this loop does no less,
and the name says which of the two rows is meant."""

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
class FedAvgStale(Method[ServerState, None]):
    """FedAvg that averages late models as they come."""

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
        return ServerState(mean_weights(arrivals, context, self.merge))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return received(down, local)
