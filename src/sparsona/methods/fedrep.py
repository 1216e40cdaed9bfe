"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated
Learning", ICML 2021. First the private head is trained on the received body, then the body under that head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._split import ClientState, answer, assembled, mean_shared
from sparsona.ops.parts import last_layers
from sparsona.ops.robust import MergeRule
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedRep(Method[ServerState, ClientState]):
    """Shared body, private head, trained one after the other.

    `head` is the number of private layers at the end. `head_epochs` is how long the head is trained before the body
    gets the usual epochs. `head_lr` is the head's learning rate, the usual one where not given. `new_epochs` is how
    long a new client trains its head; it leaves the body as it is. The authors let everyone do that before the last
    test; here nobody is tested after more training than the others have.
    """

    private: ClassVar[tuple[str, ...]] = ("kept",)
    head: Annotated[int, Field(ge=1)] = 1
    head_epochs: Annotated[int, Field(ge=1)] = 1
    head_lr: Annotated[float, Field(gt=0)] | None = None
    new_epochs: Annotated[int, Field(ge=1)] = 10

    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP

    def shared(self, layout: Layout) -> Mask:
        """The weights that are shared: the body."""
        return ~last_layers(layout, self.head)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial[self.shared(task.layout)])

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial[~self.shared(task.layout)])

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(shared=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        headed, shared = self._head(state, down, local, self.head_epochs), self.shared(local.layout)
        trained = local.train(headed, mask=shared, stream="body").weights
        return answer(trained, shared, local)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        return mean_shared(server, arrivals, self.merge, self.server)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return assembled(state, down, self.shared(local.layout))

    def adapt(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        headed = self._head(state, down, local, self.new_epochs)
        return answer(headed, self.shared(local.layout), local)

    def _head(self, state: ClientState, down: Message, local: Local, epochs: int) -> Vector:
        config = replace(local.config, epochs=epochs, steps=None, lr=self.head_lr or local.config.lr)
        shared = self.shared(local.layout)
        return local.train(assembled(state, down, shared), config, mask=~shared, stream="head").weights
