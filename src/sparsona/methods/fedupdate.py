"""FedUpdate: Jiang, Konecny, Rush, Kannan, "Improving Federated Learning Personalization via Model Agnostic Meta
Learning", 2019, as a baseline of SPFL: FedAvg; before it is used, the global model takes a step on one local batch."""

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
class FedUpdate(Averaging[None]):
    """FedAvg whose personal model is the global one after `ft_steps` steps on local batches."""

    ft_steps: Annotated[int, Field(ge=1)] = 1

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def personal_model(self, client: None, down: Message, local: Local) -> Vector:
        return local.train(received(down, local), replace(local.config, steps=self.ft_steps), stream="update").weights
