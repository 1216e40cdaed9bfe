"""LG-FedAvg: Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency, "Think Locally, Act Globally: Federated
Learning with Local and Global Representations", 2020. The early layers are the client's own, the last are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

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
class LGFedAvg(Method[ServerState, ClientState]):
    """Private representation, shared last layers, which are averaged over the replies.

    The authors start from a model that FedAvg has trained. Here all clients start from the initial model.
    """

    private: ClassVar[tuple[str, ...]] = ("kept",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    top: int = option(2, "number of shared layers at the end (at most all but the first)", ge=1)
    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP

    def shared(self, layout: Layout) -> Mask:
        """The weights that are shared: the last layers."""
        return last_layers(layout, min(self.top, len(layout.layers) - 1))

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
        return mean_shared(server, arrivals, self.merge, self.server, lambda message: 1.0)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return assembled(state, down, self.shared(local.layout))
