"""LGA: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the asynchronous half. FedAvg whose
late models are corrected for what the global model has learned since they started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import received
from sparsona.methods._rebasing import Correction, ServerState, spans_of
from sparsona.ops.mean import weighted_mean
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class LGA(Method[ServerState, None]):
    """One global model; late models are corrected for the rounds that they missed. In time it is FedAvg."""

    eq: Literal[10, 11] = option(
        11, "the paper's equation: add a late update to the current model (11) or its start (10)"
    )
    per: Literal["tensor", "stages", "net"] = option("tensor", "one cosine per tensor, per stage, or for the whole net")
    raw: bool = option(False, "scale the correction by the cosine itself")
    lambda_dc: float = option(1.0, "scale of the correction", ge=0)

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
        layout, term = context.task.layout, dict(server.term)
        correction = Correction(self.eq, self.raw, self.lambda_dc, spans_of(layout, self.per))

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
