"""FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017. The server's model goes out, trained models come back, their mean is the next."""

from __future__ import annotations

from dataclasses import dataclass

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import Averaging, received
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedAvg(Averaging[None]):
    """One global model: the mean of the clients' models by their numbers of examples."""

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def personal_model(self, client: None, down: Message, local: Local) -> Vector:
        return received(down, local)
