"""Local: every client trains alone and nothing travels. The baseline that every federation must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsona.local import Local as Client
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Task, Turn
from sparsona.methods import METHODS


@dataclass(frozen=True)
class Own:
    """The client's model."""

    weights: Vector


@METHODS.add
@dataclass(frozen=True)
class Local(Method[None, Own]):
    """Each client keeps and trains its own model."""

    def start_server(self, task: Task) -> None:
        return None

    def start_client(self, task: Task, client: ClientId) -> Own:
        return Own(task.initial)

    def send(self, server: None, to: ClientId, turn: Turn) -> Message:
        return Message()

    def fit(self, client: Own, down: Message, local: Client) -> Fit[Own]:
        trained = local.train(client.weights).weights
        return Fit(Own(trained), Message(), trained)

    def merge(self, server: None, arrivals: Sequence[Arrival], turn: Turn) -> None:
        return None

    def personal(self, client: Own, down: Message, local: Client) -> Vector:
        return client.weights
