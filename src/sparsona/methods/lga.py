"""LGA: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the asynchronous half. FedAvg whose
late models are corrected for what the global model has learned since they started."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._rebasing import Rebasing, ServerState
from sparsona.methods.averaging import received
from sparsona.ops.mean import weighted_mean
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class LGA(Rebasing[None]):
    """One global model; late models are corrected for the rounds that they missed. In time it is FedAvg."""

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout, term = context.task.layout, dict(server.term)
        correction = self.correction(layout)

        def models() -> Iterator[tuple[float, Vector]]:
            for a in arrivals:
                weights = a.message.vector("weights", layout.size)
                if a.client in server.after:
                    weights, _, term[a.client] = correction.rebased(server, a, layout)
                yield a.message.examples(), weights

        weights = weighted_mean(models())
        return ServerState(weights, server.successors(weights, context), term=term)

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return received(down, local)
