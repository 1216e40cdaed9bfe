"""Local: every client trains alone and nothing travels. The baseline that every federation must beat."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Task
from sparsona.methods import METHODS
from sparsona.methods._alone import LocalMethod
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The client's model."""

    weights: Vector


@METHODS.add
@dataclass(frozen=True)
class LocalOnly(LocalMethod[ClientState]):
    """Each client keeps and trains its own model."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        trained = local.train(state.weights).weights
        return Fit(ClientState(trained), Message(), trained)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return state.weights
