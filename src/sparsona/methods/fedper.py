"""FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization Layers", 2019. The last
layers are the client's own, the others are averaged; both are trained together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
class FedPer(Method[ServerState, ClientState]):
    """Shared body, private head."""

    private: ClassVar[tuple[str, ...]] = ("kept",)

    head: int = option(1, "number of private layers at the end", ge=1)
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
        shared = self.shared(local.layout)
        return answer(local.train(assembled(state, down, shared)).weights, shared, local)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        return mean_shared(server, arrivals, self.merge, self.server)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return assembled(state, down, self.shared(local.layout))
