"""FedUpdate: Jiang, Konecny, Rush, Kannan, "Improving Federated Learning Personalization via Model Agnostic Meta
Learning", 2019, as a baseline of SPFL: FedAvg; before it is used, the global model takes a step on one local batch.
That step is private and forgotten. In the code of SPFL's authors (MondayCat/PLGA) the tuned model starts the client's
next training, so that its step reaches the server; their text has it as here."""

from dataclasses import dataclass, replace

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Queries, Steps, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import Averaging, received
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedUpdate(Averaging[None]):
    """FedAvg whose clients take a few steps on local batches before they use the global model."""

    ft_steps: int = option(1, "number of steps", ge=1)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps(), use=steps(steps=self.ft_steps))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return local.train(received(down, local), replace(local.config, steps=self.ft_steps), stream="update").weights
