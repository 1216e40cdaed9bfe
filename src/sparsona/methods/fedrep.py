"""FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated
Learning", ICML 2021. First the private head is trained on the received body, then the body under that head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._split import ClientState, answer, assembled, mean_shared
from sparsona.ops.parts import last_layers
from sparsona.ops.robust import MergeRule
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedRep(Method[ServerState, ClientState]):
    """Shared body, private head; a client trains the head first, then the body.

    The authors train every head once more before the last test. Here no client is tested after more training than
    with the other methods.
    """

    private: ClassVar[tuple[str, ...]] = ("kept",)

    head: int = option(1, "number of private layers at the end", ge=1)
    head_epochs: int = option(1, "epochs of the head, before the body is trained for training.epochs", ge=1)
    head_lr: float | None = option(None, "learning rate of the head (not given: training.lr)", gt=0)
    new_epochs: int = option(10, "epochs that a new client trains its head; the body stays as it is", ge=1)
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
