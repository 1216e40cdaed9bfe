"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys
2020. FedAvg whose clients are held near the global model by mu/2 |w - w_global|^2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import averaged, received
from sparsona.ops.robust import MergeRule
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.options import option
from sparsona.training.job import Proximal
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedProx(Method[ServerState, None]):
    """FedAvg with a proximal term in the local loss."""

    mu: float = option(0.1, "strength of the proximal term (0: FedAvg)", ge=0)
    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        start = received(down, local)
        trained = local.train(start, proximal=Proximal(start, self.mu) if self.mu else None).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        return averaged(server, arrivals, context, self.merge, self.server)

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return received(down, local)
