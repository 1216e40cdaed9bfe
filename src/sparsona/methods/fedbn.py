"""FedBN: Li, Jiang, Zhang, Kamp, Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
ICLR 2021. FedAvg, but normalisation layers stay with their clients: scales, shifts and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._split import ClientState, answer, assembled, mean_shared
from sparsona.ops.parts import normalisation
from sparsona.ops.robust import MergeRule
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedBN(Method[ServerState, ClientState]):
    """FedAvg with private normalisation layers; a model without any is trained as by FedAvg."""

    private: ClassVar[tuple[str, ...]] = ("kept",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP

    def shared(self, layout: Layout) -> Mask:
        """The weights that all clients have in common."""
        return ~normalisation(layout)

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
