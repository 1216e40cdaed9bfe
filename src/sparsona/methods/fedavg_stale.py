"""FedAvg with stale models: the row "FedAvg (Async)" of "Personalized Heterogeneous Federated Learning with Gradient
Similarity". Whatever arrives in a round is averaged, from whichever model it started; FedAvg in this loop does no less,
and the name says which of the two rows is meant."""

from __future__ import annotations

from dataclasses import dataclass

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import Averaging, received
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedAvgStale(Averaging[None]):
    """FedAvg that averages late models as they come."""

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def personal_model(self, client: None, down: Message, local: Local) -> Vector:
        return received(down, local)
