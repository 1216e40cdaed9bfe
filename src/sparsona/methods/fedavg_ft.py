"""FedAvg with fine-tuning: Jiang, Konecny, Rush, Kannan, "Improving Federated Learning Personalization via Model
Agnostic Meta Learning", 2019. FedAvg; before it is used, a client trains a private copy of the global model."""

from dataclasses import dataclass, replace

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Queries, Steps, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import Averaging, received
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedAvgFT(Averaging[None]):
    """FedAvg whose clients fine-tune the global model before they use it."""

    ft_epochs: int = option(1, "epochs of fine-tuning", ge=1)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps(), use=steps(epochs=self.ft_epochs, steps=None))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        config = replace(local.config, epochs=self.ft_epochs, steps=None)
        return local.train(received(down, local), config, stream="fine-tune").weights
