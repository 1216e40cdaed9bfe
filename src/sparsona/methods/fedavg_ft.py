"""FedAvg whose clients tune a private copy of the global model before they use it, and forget it afterwards.

- FedAvg with fine-tuning, for some epochs: Jiang, Konecny, Rush, Kannan, "Improving Federated Learning Personalization
  via Model Agnostic Meta Learning", 2019.
- FedUpdate, for a step on one local batch: the same paper, as a baseline of SPFL. In the code of SPFL's authors
  (MondayCat/PLGA) the tuned model starts the client's next training, so that its step reaches the server; their text
  has it as here.
"""

from dataclasses import dataclass, replace

from sparsona.message import Message, Vector
from sparsona.method import Queries, Steps
from sparsona.methods import METHODS
from sparsona.methods.averaging import Averaging, received
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedAvgFT(Averaging[None]):
    """FedAvg whose clients fine-tune the global model before they use it."""

    ft_epochs: int = option(1, "epochs of fine-tuning", ge=1)

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps(), use=steps(epochs=self.ft_epochs, steps=None))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        config = replace(local.config, epochs=self.ft_epochs, steps=None)
        return local.train(received(down, local), config, stream="fine-tune").weights


@METHODS.named("fedupdate")
@dataclass(frozen=True)
class FedUpdate(Averaging[None]):
    """FedAvg whose clients take a few steps on local batches before they use the global model."""

    ft_steps: int = option(1, "number of steps", ge=1)

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps(), use=steps(steps=self.ft_steps))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return local.train(received(down, local), replace(local.config, steps=self.ft_steps), stream="update").weights
