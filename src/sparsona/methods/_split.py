"""A model in two parts, of which one is averaged and the other never leaves the client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.ops.mean import weighted_mean
from sparsona.ops.parts import joined
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The shared part."""

    shared: Vector


@dataclass(frozen=True)
class ClientState:
    """The client's own part."""

    kept: Vector


@dataclass(frozen=True)
class Split(Method[ServerState, ClientState], ABC):
    """What is left to say is which part is shared, and how a client trains."""

    private: ClassVar[tuple[str, ...]] = ("kept",)

    @abstractmethod
    def shared(self, layout: Layout) -> Mask:
        """Where the shared part stands."""

    @abstractmethod
    def train(self, start: Vector, shared: Mask, local: Local) -> Vector: ...

    def weight(self, message: Message) -> float:
        """What a reply counts in the mean."""
        return message.examples()

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial[self.shared(task.layout)])

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial[~self.shared(task.layout)])

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(shared=server.shared)

    def fit(self, client: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        return self._answer(
            self.train(self.personal_model(client, down, local), self.shared(local.layout), local), local
        )

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size = len(server.shared)
        return ServerState(weighted_mean((self.weight(a.message), a.message.vector("shared", size)) for a in arrivals))

    def personal_model(self, client: ClientState, down: Message, local: Local) -> Vector:
        shared = self.shared(local.layout)
        return joined(shared, down.vector("shared", int(shared.sum())), client.kept)

    def _answer(self, trained: Vector, local: Local) -> Fit[ClientState]:
        shared = self.shared(local.layout)
        return Fit(ClientState(trained[~shared]), Message(shared=trained[shared], examples=local.examples), trained)
