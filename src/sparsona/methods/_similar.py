"""SPFL and SPFL-w: one model per client on the server, and every `gamma` rounds a pass that measures similarity.

Clients that take part start this pass from the mean of all models and continue from that mean; the training of the
pass is discarded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from sparsona.by_client import ByClient
from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import (
    TRAIN,
    Arrival,
    Artefact,
    ClientId,
    ClientMatrices,
    Fit,
    Method,
    Phase,
    Queries,
    ServerContext,
    Steps,
    Task,
)
from sparsona.ops.mean import weighted_mean
from sparsona.ops.pairwise import LazyVectors, Similarity, Vectors, fits
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """`common`, the start of the last measuring pass; the models w_i of clients that differ from it; and the mean of
    all known clients, the start of the next pass. A new client has the model `common`.
    """

    common: Vector
    mean: Vector
    models: ByClient[Vector]
    similarity: Similarity

    def model(self, client: ClientId) -> Vector:
        """Return a client's model."""
        return self.models.get(client, self.common)

    def known(self) -> list[ClientId]:
        """Return all clients that ever replied."""
        return sorted({*self.similarity.clients, *self.models})

    def measured(self, clients: Sequence[ClientId], similarity: Similarity) -> ServerState:
        """Return the state after a measuring pass: participants have the mean, absent clients keep their models."""
        elsewhere = {k: self.common for k in self.similarity.clients if k not in self.models}
        return ServerState(self.mean, self.mean, (self.models | elsewhere).without(clients), similarity)

    def moved(self, models: dict[ClientId, Vector]) -> ServerState:
        """Return the state with new models for some clients."""
        return replace(self, models=self.models | models)

    def averaged(self) -> ServerState:
        """Return the state with the present mean of all models."""
        return replace(self, mean=weighted_mean((1.0, self.model(k)) for k in self.known()))


@dataclass(frozen=True)
class Replies:
    """The trained models of some clients, and their numbers of examples."""

    clients: tuple[ClientId, ...]
    examples: tuple[int, ...]
    updates: Vectors


def sorted_out(arrivals: Sequence[Arrival], size: int) -> tuple[Replies, Replies]:
    """Return the replies of measuring and of training, decoded once if they fit into memory, else on access."""
    replies = list(arrivals) if fits(len(arrivals), size) else arrivals
    seen = [(a.client, 0 if "measured" in a.message else a.message.examples()) for a in replies]

    def update(reply: Arrival) -> Vector:
        return reply.message.vector("weights", size) - reply.sent.vector("weights", size)

    def those(places: list[int]) -> Replies:
        updates = LazyVectors(len(places), lambda i: update(replies[places[i]]))
        return Replies(tuple(seen[i][0] for i in places), tuple(seen[i][1] for i in places), updates)

    measuring = [i for i, (_, examples) in enumerate(seen) if not examples]
    return those(measuring), those([i for i, (_, examples) in enumerate(seen) if examples])


MEASURE = Phase("measure")
"""The measuring pass."""


@dataclass(frozen=True)
class BySimilarity(Method[ServerState, None], ABC):
    """A method that mixes the clients' models by how alike their gradients are."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"
    unused: ClassVar[tuple[str, ...]] = ("repeats",)

    gamma: int = option(10, "rounds between two measurements of similarity", ge=1)
    steps: Literal["two", "one"] = option("two", "gradient steps per batch")

    @abstractmethod
    def measured(self, old: Similarity, replies: Replies, layout: Layout) -> Similarity:
        """Return the similarity after the replies of a measuring pass."""

    @abstractmethod
    def mixed(self, server: ServerState, replies: Replies, layout: Layout) -> dict[ClientId, Vector]:
        """Return the clients' new models after the replies of training."""

    def phases(self, round: int) -> tuple[Phase, ...]:
        """Every `gamma` rounds a measuring pass comes before the training."""
        return (MEASURE, TRAIN) if round % self.gamma == 0 else (TRAIN,)

    def start_server(self, task: Task) -> ServerState:
        """All clients stand at the initial model."""
        return ServerState(task.initial, task.initial, ByClient(), Similarity((), {}))

    def start_client(self, task: Task, client: ClientId) -> None:
        """A client remembers nothing."""
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        """Send a client its own model; for a measuring pass the mean of all."""
        return Message(weights=server.mean if context.phase == MEASURE else server.model(to))

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        """Train, once or twice on every batch; a measuring pass only sends its result."""
        config = replace(local.config, repeats=2 if self.steps == "two" else 1)
        stream = "measure" if local.phase == MEASURE else "train"
        trained = local.train(self.personal_model(state, down, local), config, stream=stream).weights
        if local.phase == MEASURE:
            return Fit(None, Message(weights=trained, measured=1), None)
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        """Take a new similarity from a measuring pass, new models from training."""
        layout = context.task.layout
        measuring, training = sorted_out(arrivals, layout.size)
        if measuring.clients:
            similarity = self.measured(server.similarity, measuring, layout)
            server = server.measured(measuring.clients, similarity)
        if training.clients:
            server = server.moved(self.mixed(server, training, layout))
        return server.averaged()

    def queries(self, steps: Steps) -> Queries:
        """Plan a training in each round, and one more in each measuring pass."""
        one = steps(repeats=2 if self.steps == "two" else 1)
        return Queries(one * (1 + 1 / self.gamma), once=one)

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        """Use the client's model on the server."""
        return down.vector("weights", local.layout.size)

    def artefacts(self, server: ServerState) -> dict[str, Artefact]:
        """Return the similarity, once it was measured."""
        found = server.similarity
        return {"similarity": ClientMatrices(found.clients, found.stages)} if found.clients else {}
