"""The contract between a method and whatever runs it.

A method is a frozen dataclass of hyper-parameters with six functions. The server remembers `S`, each client `C`:
frozen dataclasses of vectors, positions and numbers, which the engine stores, checkpoints and ships. A method knows
neither engine nor wire; it hands over messages, and both sides see only what a message carries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch

from sparsona.chance import Chance
from sparsona.layout import Layout
from sparsona.message import Message, Vector

if TYPE_CHECKING:
    from sparsona.training.local import Local

ClientId: TypeAlias = str
S = TypeVar("S")
C = TypeVar("C")


class Predictor(Protocol):
    """A personal model that is more than one vector: a frozen dataclass of state that knows how to predict.

    `forward` runs the task's module with the given weights, in evaluation mode.
    """

    def predict(
        self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor
    ) -> torch.Tensor: ...


Model: TypeAlias = Vector | Predictor


@dataclass(frozen=True)
class Task:
    """What both sides know before anything travels. `initial` follows from the seed, so it need not be sent."""

    layout: Layout
    initial: Vector = field(repr=False)
    clients: tuple[ClientId, ...]
    rounds: int
    shape: tuple[int, ...]
    classes: int
    chance: Chance


@dataclass(frozen=True)
class Phase:
    """One send-fit-merge turn of the loop. `everyone` asks all clients, whoever the schedule has sampled.

    `joining`: a client that joins after training takes this turn of round 0 first, so that the server knows it.
    """

    name: str
    everyone: bool = False
    joining: bool = False


TRAIN = Phase("train")


@dataclass(frozen=True)
class ServerContext:
    """Where the server stands: the round (from 0), the phase within it, and whose replies are still under way."""

    task: Task
    round: int
    phase: int = 0
    waiting: Mapping[ClientId, int] = field(default_factory=dict)

    def rng(self, purpose: str, client: ClientId = "", layer: int = 0) -> np.random.Generator:
        return self.task.chance.rng(f"server/{purpose}", round=self.round, client=client, layer=layer)


@dataclass(frozen=True)
class Arrival:
    """A client's reply, and the round whose downlink it answers."""

    client: ClientId
    message: Message
    round: int


@dataclass(frozen=True)
class Fit(Generic[C]):
    """What a client's turn gives: its new state, its reply, and its model after training (the `post` point).

    `model` is None in an phase that trains nothing.
    """

    client: C
    reply: Message
    model: Model | None


@dataclass(frozen=True)
class Method(ABC, Generic[S, C]):
    """A federated method. Subclasses are frozen dataclasses and final.

    `private` names the fields of the client's state that must never travel; :func:`sparsona.testing.check_method`
    searches every message for them.
    """

    private: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def start_server(self, task: Task) -> S:
        """What the server knows before the first round."""

    @abstractmethod
    def start_client(self, task: Task, client: ClientId) -> C:
        """What `client` knows before its first round, whenever it joins."""

    @abstractmethod
    def send(self, server: S, to: ClientId, context: ServerContext) -> Message:
        """The downlink for one client, known or new. Changes nothing: it is also called to evaluate."""

    @abstractmethod
    def fit(self, client: C, down: Message, local: Local) -> Fit[C]:
        """The client's turn: read the downlink, train, answer."""

    @abstractmethod
    def aggregate(self, server: S, arrivals: Sequence[Arrival], context: ServerContext) -> S:
        """Fold the replies in. There is at least one; they come sorted by client, whatever their order on the wire.

        Each message is decoded when it is asked for, so one pass over `arrivals` holds one message at a time.
        """

    @abstractmethod
    def personal_model(self, client: C, down: Message, local: Local) -> Model:
        """The client's own model as assembled from its state and the downlink: what is tested, saved, exported."""

    def phases(self, round: int) -> tuple[Phase, ...]:
        """The turns of this round. `down.phase` and `turn.phase` count them."""
        return (TRAIN,)

    def adapt(self, client: C, down: Message, local: Local) -> Fit[C]:
        """What a client that joins after training does with its data. By default the same as a round."""
        return self.fit(client, down, local)

    def max_numbers(self, task: Task) -> int:
        """The most numbers that one message may hold: a peer that sends more is refused before memory is taken."""
        return 2 * task.layout.size + 4096
