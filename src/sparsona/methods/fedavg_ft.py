"""FedAvg with fine-tuning: Jiang, Konecny, Rush, Kannan, "Improving Federated Learning Personalization via Model
Agnostic Meta Learning", 2019. FedAvg; before it is used, a client trains a private copy of the global model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import averaged, received
from sparsona.ops.robust import MergeRule
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedAvgFT(Method[ServerState, None]):
    """FedAvg whose clients fine-tune the global model before they use it."""

    ft_epochs: int = option(1, "epochs of fine-tuning", ge=1)
    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP

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
        return averaged(server, arrivals, context, self.merge, self.server)

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        config = replace(local.config, epochs=self.ft_epochs, steps=None)
        return local.train(received(down, local), config, stream="fine-tune").weights
