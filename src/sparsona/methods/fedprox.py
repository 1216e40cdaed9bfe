"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys
2020. FedAvg whose clients are held near the global model by mu/2 |w - w_global|^2."""

from dataclasses import dataclass

from sparsona.message import Message
from sparsona.method import Fit
from sparsona.methods import METHODS
from sparsona.methods.averaging import Averaging, received
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.step import Proximal


@METHODS.add
@dataclass(frozen=True)
class FedProx(Averaging[None]):
    """FedAvg with a proximal term in the local loss."""

    mu: float = option(0.1, "strength of the proximal term (0: FedAvg)", ge=0)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        start = received(down, local)
        trained = local.train(start, proximal=Proximal(start, self.mu) if self.mu else None).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)
