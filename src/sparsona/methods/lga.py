"""LGA: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the asynchronous half. FedAvg whose
late models are corrected for what the global model has learned since they started."""

from __future__ import annotations

from dataclasses import dataclass

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import received
from sparsona.methods._rebasing import Rebasing
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class LGA(Rebasing[None]):
    """One global model; late models are moved to where it stands now. With nobody late it is FedAvg.

    `eq` 11 adds a late update to the model of today, 10 to the one it started from; `per` tensor or stages: what one
    cosine is taken over; `raw`: scale the correction by the cosine; `lambda_dc`: and by this.
    """

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def personal_model(self, client: None, down: Message, local: Local) -> Vector:
        return received(down, local)
