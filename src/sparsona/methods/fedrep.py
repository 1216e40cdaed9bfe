"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated
Learning", ICML 2021. First the private head is trained on the received body, then the body under that head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.method import Fit
from sparsona.methods import METHODS
from sparsona.methods._split import ClientState, Split
from sparsona.ops.parts import last_layers
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedRep(Split):
    """Shared body, private head of the last `head` layers: `head_epochs` for the head, then the config's for the body.

    A new client trains its head for `new_epochs` and leaves the body as it is. The authors let everyone do that before
    the last test; here nobody is tested after more training than the others have.
    """

    head: Annotated[int, Field(ge=1)] = 1
    head_epochs: Annotated[int, Field(ge=1)] = 1
    head_lr: Annotated[float, Field(gt=0)] | None = None
    new_epochs: Annotated[int, Field(ge=1)] = 10

    def shared(self, layout: Layout) -> Mask:
        return ~last_layers(layout, self.head)

    def train(self, start: Vector, shared: Mask, local: Local) -> Vector:
        headed = self._head(start, shared, local, self.head_epochs)
        return local.train(headed, mask=shared, stream="body").weights

    def adapt(self, client: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        trained = self._head(
            self.personal_model(client, down, local), self.shared(local.layout), local, self.new_epochs
        )
        return self._answer(trained, local)

    def _head(self, start: Vector, shared: Mask, local: Local, epochs: int) -> Vector:
        config = replace(local.config, epochs=epochs, steps=None, lr=self.head_lr or local.config.lr)
        return local.train(start, config, mask=~shared, stream="head").weights
