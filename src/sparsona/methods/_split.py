"""A model in two parts, of which one is averaged and the other never leaves the client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sparsona.local import Local
from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Task, Turn
from sparsona.ops.mean import weighted_mean
from sparsona.ops.parts import joined
from sparsona.vector import Layout


@dataclass(frozen=True)
class Server:
    """The shared part."""

    shared: Vector


@dataclass(frozen=True)
class Own:
    """The client's own part."""

    kept: Vector


@dataclass(frozen=True)
class Split(Method[Server, Own], ABC):
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

    def start_server(self, task: Task) -> Server:
        return Server(task.initial[self.shared(task.layout)])

    def start_client(self, task: Task, client: ClientId) -> Own:
        return Own(task.initial[~self.shared(task.layout)])

    def send(self, server: Server, to: ClientId, turn: Turn) -> Message:
        return Message(shared=server.shared)

    def fit(self, client: Own, down: Message, local: Local) -> Fit[Own]:
        return self._answer(self.train(self.personal(client, down, local), self.shared(local.layout), local), local)

    def merge(self, server: Server, arrivals: Sequence[Arrival], turn: Turn) -> Server:
        size = len(server.shared)
        return Server(weighted_mean((self.weight(a.message), a.message.vector("shared", size)) for a in arrivals))

    def personal(self, client: Own, down: Message, local: Local) -> Vector:
        shared = self.shared(local.layout)
        return joined(shared, down.vector("shared", int(shared.sum())), client.kept)

    def _answer(self, trained: Vector, local: Local) -> Fit[Own]:
        shared = self.shared(local.layout)
        return Fit(Own(trained[~shared]), Message(shared=trained[shared], examples=local.examples), trained)
