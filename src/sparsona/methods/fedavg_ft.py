"""FedAvg with fine-tuning: Jiang, Konecny, Rush, Kannan, "Improving Federated Learning Personalization via Model
Agnostic Meta Learning", 2019. FedAvg; before it is used, a client trains a private copy of the global model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import Averaging, received
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedAvgFT(Averaging[None]):
    """FedAvg whose personal model is the global one after `ft_epochs` of local training."""

    ft_epochs: Annotated[int, Field(ge=1)] = 1

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def personal_model(self, client: None, down: Message, local: Local) -> Vector:
        config = replace(local.config, epochs=self.ft_epochs, steps=None)
        return local.train(received(down, local), config, stream="fine-tune").weights
