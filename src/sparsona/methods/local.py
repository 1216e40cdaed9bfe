"""Local: every client trains alone and nothing travels. The baseline that every federation must beat."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The client's model."""

    weights: Vector


@METHODS.add
@dataclass(frozen=True)
class LocalOnly(Method[None, ClientState]):
    """Each client keeps and trains its own model."""

    alone: ClassVar[bool] = True
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    def start_server(self, task: Task) -> None:
        return None

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial)

    def send(self, server: None, to: ClientId, context: ServerContext) -> Message:
        return Message()

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        trained = local.train(state.weights).weights
        return Fit(ClientState(trained), Message(), trained)

    def aggregate(self, server: None, arrivals: Sequence[Arrival], context: ServerContext) -> None:
        return None

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return state.weights
