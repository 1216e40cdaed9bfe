"""What SPFL and SPFL-w share: a model a client on the server, and every so many rounds a pass that measures who is
like whom. Whoever takes part starts that pass from the mean of all models, and goes on from there; what was learned in
it is thrown away."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import TRAIN, Arrival, ClientId, Fit, Method, Phase, ServerContext, Task
from sparsona.ops.mean import weighted_mean
from sparsona.ops.pairwise import Lazy, Matrix, Similarity, Vectors, fits
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """`common`, from which the last measuring pass started; the models w_i of the clients that are elsewhere; and the
    mean now of all clients that were ever heard of, from which the next pass starts. A new client stands at `common`.
    """

    common: Vector
    mean: Vector
    models: dict[ClientId, Vector]
    similarity: Similarity

    def model(self, client: ClientId) -> Vector:
        return self.models.get(client, self.common)

    def known(self) -> list[ClientId]:
        return sorted({*self.similarity.clients, *self.models})

    def measured(self, clients: Sequence[ClientId], similarity: Similarity) -> ServerState:
        """After a pass from the mean: those who took part stand there, the absent keep their models."""
        kept = {k: self.model(k) for k in self.known() if k not in clients}
        return ServerState(self.mean, self.mean, kept, similarity)

    def moved(self, models: dict[ClientId, Vector]) -> ServerState:
        return replace(self, models={**self.models, **models})

    def averaged(self) -> ServerState:
        return replace(self, mean=weighted_mean((1.0, self.model(k)) for k in self.known()))


@dataclass(frozen=True)
class Replies:
    """What some clients have learned, and from how many examples."""

    clients: tuple[ClientId, ...]
    examples: tuple[int, ...]
    updates: Vectors


def sorted_out(arrivals: Sequence[Arrival], size: int) -> tuple[Replies, Replies]:
    """The replies of a measuring pass and those of training, decoded once if all may be held, or else when they are
    asked for."""
    replies = list(arrivals) if fits(len(arrivals), size) else arrivals
    seen = [(a.client, 0 if "measured" in a.message else a.message.examples()) for a in replies]

    def those(part: str, places: list[int]) -> Replies:
        updates = Lazy(len(places), lambda i: replies[places[i]].message.vector(part, size))
        return Replies(tuple(seen[i][0] for i in places), tuple(seen[i][1] for i in places), updates)

    measuring = [i for i, (_, examples) in enumerate(seen) if not examples]
    return those("measured", measuring), those("update", [i for i, (_, examples) in enumerate(seen) if examples])


@dataclass(frozen=True)
class Measuring(Method[ServerState, None], ABC):
    """Client i has its own model w_i, made of all clients' work by softmax(S_ij), S measured every `gamma` rounds.

    `steps`: gradient steps on every batch, the second on the same batch from where the first has led.
    """

    gamma: Annotated[int, Field(ge=1)] = 10
    steps: Literal["two", "one"] = "two"

    @abstractmethod
    def similarities(self, updates: Vectors, layout: Layout) -> dict[str, Matrix]:
        """S by stage, of what the clients learned from the common start."""

    @abstractmethod
    def mixed(self, server: ServerState, replies: Replies, layout: Layout) -> dict[ClientId, Vector]:
        """The new models of those who answered."""

    def phases(self, round: int) -> tuple[Phase, ...]:
        return (Phase("measure"), TRAIN) if round % self.gamma == 0 else (TRAIN,)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, task.initial, {}, Similarity((), {}))

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        if self._measures(context.round, context.phase):
            return Message(weights=server.mean)
        return Message(weights=server.model(to))

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        start = down.vector("weights", local.layout.size)
        config = replace(local.config, repeats=2 if self.steps == "two" else 1)
        if self._measures(down.round, down.phase):
            return Fit(None, Message(measured=local.train(start, config, stream="measure").weights - start), None)
        trained = local.train(start, config).weights
        return Fit(None, Message(update=trained - start, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout = context.task.layout
        measured, trained = sorted_out(arrivals, layout.size)
        if measured.clients:
            stages = self.similarities(measured.updates, layout)
            similarity = self.smoothed(server.similarity, measured.clients, stages)
            server = server.measured(measured.clients, similarity)
        if trained.clients:
            server = server.moved(self.mixed(server, trained, layout))
        return server.averaged()

    def smoothed(self, old: Similarity, names: Sequence[ClientId], stages: dict[str, Matrix]) -> Similarity:
        return old.updated(names, stages)

    def personal_model(self, client: None, down: Message, local: Local) -> Vector:
        return down.vector("weights", local.layout.size)

    def _measures(self, round: int, phase: int) -> bool:
        return round % self.gamma == 0 and phase == 0
