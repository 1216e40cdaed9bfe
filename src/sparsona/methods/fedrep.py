"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated
Learning", ICML 2021. First the private head is trained on the received body, then the body under that head."""

from dataclasses import dataclass, replace

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.method import Fit, Queries, Steps
from sparsona.methods import METHODS
from sparsona.methods._split import ClientState, SplitModel
from sparsona.ops.parts import last_layers
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedRep(SplitModel):
    """Shared body, private head; a client trains the head first, then the body.

    The authors train every head once more before the last test. Here no client is tested after more training than
    with the other methods.
    """

    head: int = option(1, "number of private layers at the end", ge=1)
    head_epochs: int = option(1, "epochs of the head, before the body is trained for training.epochs", ge=1)
    head_lr: float | None = option(None, "learning rate of the head (not given: training.lr)", gt=0)
    new_epochs: int = option(10, "epochs that a new client trains its head; the body stays as it is", ge=1)

    def shared(self, layout: Layout) -> Mask:
        """Return the shared weights: the body."""
        return ~last_layers(layout, self.head)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        headed = self._head(state, down, local, self.head_epochs)
        return self.answer(local.train(headed, mask=self.shared(local.layout), stream="body").weights, local)

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps(epochs=self.head_epochs, steps=None) + steps())

    def adapt(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        return self.answer(self._head(state, down, local, self.new_epochs), local)

    def _head(self, state: ClientState, down: Message, local: Local, epochs: int) -> Vector:
        config = replace(local.config, epochs=epochs, steps=None, lr=self.head_lr or local.config.lr)
        whole, private = self.personal_model(state, down, local), ~self.shared(local.layout)
        return local.train(whole, config, mask=private, stream="head").weights
