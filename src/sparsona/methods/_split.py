"""Methods whose model has two parts: one is averaged, the other never leaves the client."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sparsona.layout import Layout
from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.ops.parts import joined
from sparsona.ops.robust import MergeRule, merged
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The client's own part."""

    kept: Vector


@dataclass(frozen=True)
class SplitModel(Method[ServerState, ClientState], ABC):
    """A method whose clients share some weights, chosen by the method, and keep the others."""

    private: ClassVar[tuple[str, ...]] = ("kept",)

    merge: MergeRule = field(default="mean", kw_only=True)
    server: ServerStep = field(default=PLAIN_STEP, kw_only=True)

    @abstractmethod
    def shared(self, layout: Layout) -> Mask:
        """Return the mask of the shared weights."""

    def weight(self, reply: Message) -> float:
        """Return the weight of a reply in the mean of the shared parts: its examples."""
        return reply.examples()

    def start_server(self, task: Task) -> ServerState:
        """The server has the shared part of the initial model."""
        return ServerState(task.initial[self.shared(task.layout)])

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        """A client has its own part of the initial model."""
        return ClientState(task.initial[~self.shared(task.layout)])

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        """Send the shared part."""
        return Message(shared=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        """Train both parts together."""
        return self.answer(local.train(self.personal_model(state, down, local)).weights, local)

    def answer(self, trained: Vector, local: Local) -> Fit[ClientState]:
        """Send the shared part of a trained model back, and keep the other one."""
        shared = self.shared(local.layout)
        return Fit(ClientState(trained[~shared]), Message(shared=trained[shared], examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        """Step towards the mean of the shared parts."""
        size = len(server.weights)
        replies = ((self.weight(a.message), a.message.vector("shared", size)) for a in arrivals)
        return server.towards(merged(self.merge, replies, server.weights), self.server)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        """Join the part that came and the client's own."""
        shared = self.shared(local.layout)
        return joined(shared, down.vector("shared", int(shared.sum())), state.kept)
