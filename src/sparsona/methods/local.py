"""Local: every client trains alone and nothing travels. The baseline that every federation must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._personal import NO_MEAN, Personal
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The client's model, and the running mean of its models."""

    weights: Vector
    mean: Vector | None = None


@METHODS.add
@dataclass(frozen=True)
class LocalOnly(Method[None, ClientState]):
    """Each client keeps and trains its own model."""

    alone: ClassVar[bool] = True
    buffers: ClassVar[Literal["averaged", "own"]] = "own"
    personal: Personal = NO_MEAN

    def start_server(self, task: Task) -> None:
        return None

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial)

    def send(self, server: None, to: ClientId, context: ServerContext) -> Message:
        return Message()

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        trained = local.train(state.weights).weights
        mean = self.personal.mean(state.mean, trained)
        return Fit(ClientState(trained, mean), Message(), self.personal.model(mean, trained))

    def aggregate(self, server: None, arrivals: Sequence[Arrival], context: ServerContext) -> None:
        return None

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return self.personal.model(state.mean, state.weights)
