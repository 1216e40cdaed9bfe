"""FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017. The server's model goes out, trained models come back, their mean is the next."""

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
class FedAvg(Method[ServerState, None]):
    """One global model: the mean of the clients' models by their numbers of examples."""

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
