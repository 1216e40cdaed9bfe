"""The contract between a method and whatever runs it.

A method is a frozen dataclass of hyper-parameters with six functions. The server remembers `S`, each client `C`:
frozen dataclasses of vectors, positions and numbers, which the engine stores, checkpoints and ships. A method knows
neither engine nor wire; it hands over messages, and both sides see only what a message carries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from sparsona.chance import Chance
from sparsona.layout import Forward, Layout
from sparsona.message import Message, Vector

if TYPE_CHECKING:
    import torch

    from sparsona.training.local import Local

ClientId: TypeAlias = str
Steps: TypeAlias = Callable[..., int]
"""Counts the steps of a training on a client's rows; keywords change settings of its config, such as epochs."""
S = TypeVar("S")
C = TypeVar("C")


class Predictor(Protocol):
    """A personal model that is more than one vector: a frozen dataclass of state that knows how to predict.

    `forward(weights, inputs)` gives the outputs of the task's module in evaluation mode, `forward.embed(weights,
    inputs)` its embeddings.
    """

    def predict(self, forward: Forward, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs of the model for a batch of inputs."""


@runtime_checkable
class SparsePredictor(Predictor, Protocol):
    """A predictor for which one set of sparse weights can stand: it can be exported as a small net."""

    def vector(self) -> Vector:
        """The weights that stand for the whole."""

    def signature(self) -> Vector:
        """The numbers by which a report compares the models of clients."""


Model: TypeAlias = Vector | Predictor


@dataclass(frozen=True)
class ClientGraph:
    """A network of clients: edges (i, j) between places in `clients`, each with its weight."""

    clients: tuple[ClientId, ...]
    edges: tuple[tuple[int, int], ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class ClientMatrices:
    """One square matrix of numbers between clients for each named stage of the model."""

    clients: tuple[ClientId, ...]
    stages: Mapping[str, npt.NDArray[np.float64]]


Artefact: TypeAlias = ClientGraph | ClientMatrices
"""What a method may hand to reports."""


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
    """One send-fit-aggregate step of a round. `everyone` asks all clients, whoever the schedule has sampled.

    `joining`: a client that joins after training takes this phase of round 0 first, so that the server knows it.
    """

    name: str
    everyone: bool = False
    joining: bool = False


TRAIN = Phase("train")


@dataclass(frozen=True)
class Queries:
    """How many gradients of its rows a method asks a client for: in each round, in each use of its model, and once.

    With a privacy budget each is a query, and the noise is chosen for as many as are planned here. A client that has
    answered more takes part no longer, so a method that plans too few loses clients, not privacy.
    """

    round: float
    use: int = 0
    once: int = 0


@dataclass(frozen=True)
class ServerContext:
    """Where the server stands: the round (from 0) and its phase.

    `unanswered` are the clients that have a downlink and whose reply is still to come.
    """

    task: Task
    round: int
    phase: Phase = TRAIN
    unanswered: frozenset[ClientId] = frozenset()

    def rng(self, purpose: str, client: ClientId = "", layer: int = 0) -> np.random.Generator:
        """A generator of the server's own, for one purpose in this round."""
        return self.task.chance.rng(f"server/{purpose}", round=self.round, client=client, layer=layer)


@dataclass(frozen=True)
class Arrival:
    """A client's reply, the round that it answers, and `sent`: the downlink that it answers.

    >>> Arrival("a", Message(examples=3), 0, lambda: Message(version=7)).sent.integer("version")
    7
    """

    client: ClientId
    message: Message
    round: int
    find_sent: Callable[[], Message] = Message

    @property
    def sent(self) -> Message:
        """The downlink that the reply answers."""
        return self.find_sent()


class _Same(Enum):
    STATE = "the same state"


@dataclass(frozen=True)
class Fit(Generic[C]):
    """What a client's turn gives: its new state, its reply, and its model after training (the `post` point).

    `model` is None in a phase that trains nothing. `if_lost` is the state to go on from if the reply never arrives: the
    same one, unless the method says otherwise. The loop keeps both until it knows.
    """

    state: C
    reply: Message
    model: Model | None
    if_lost: C | Literal[_Same.STATE] = _Same.STATE

    @property
    def lost(self) -> C:
        """The state to go on from if the reply is lost."""
        return self.state if isinstance(self.if_lost, _Same) else self.if_lost


@dataclass(frozen=True)
class Method(ABC, Generic[S, C]):
    """A federated method. Subclasses are frozen dataclasses of options: final, or abstract families that share code."""

    private: ClassVar[tuple[str, ...]] = ()
    """The fields of the client's state that never travel: :func:`sparsona.testing.check_method` looks for them."""

    feedback: ClassVar[str] = ""
    """The field of the client's state that holds what was not sent yet, in a method with error feedback."""

    buffers: ClassVar[Literal["averaged", "own"]] = "averaged"
    """BatchNorm's statistics: the loop sends and averages them, or leaves each client its own. They are those of the
    model that was trained last, so a method whose clients have a model of their own leaves them there."""

    unused: ClassVar[tuple[str, ...]] = ()
    """The training settings that the method does not read, having options in their place: who sets one is warned."""

    average: ClassVar[float] = 0.0
    """The `personal.average` that the method suggests: an experiment that does not set it has this one."""

    alone: ClassVar[bool] = False
    """Whether clients train alone: no order goes out, no reply comes back."""

    @abstractmethod
    def start_server(self, task: Task) -> S:
        """The server's state before the first round."""

    @abstractmethod
    def start_client(self, task: Task, client: ClientId) -> C:
        """The state of `client` before its first turn, whenever it joins."""

    @abstractmethod
    def send(self, server: S, to: ClientId, context: ServerContext) -> Message:
        """The downlink for one client, known or new. It changes nothing, and the same call gives the same message."""

    @abstractmethod
    def fit(self, state: C, down: Message, local: Local) -> Fit[C]:
        """The client's turn: read the downlink, train, answer."""

    @abstractmethod
    def aggregate(self, server: S, arrivals: Sequence[Arrival], context: ServerContext) -> S:
        """The server's state after the replies. There is at least one; they come sorted by client.

        Each message is decoded when it is asked for, so one pass over `arrivals` holds one message at a time.
        """

    @abstractmethod
    def personal_model(self, state: C, down: Message, local: Local) -> Model:
        """The client's own model as assembled from its state and the downlink: what is tested, saved, exported."""

    def phases(self, round: int) -> tuple[Phase, ...]:
        """The phases of this round; the last one trains. `local.phase` and `context.phase` tell which one it is."""
        return (TRAIN,)

    def adapt(self, state: C, down: Message, local: Local) -> Fit[C]:
        """What a client that joins after training does with its data. By default the same as a round."""
        return self.fit(state, down, local)

    def artefacts(self, server: S) -> Mapping[str, Artefact]:
        """What the server has found out and a report can draw, by name: a network, a similarity."""
        return {}

    def queries(self, steps: Steps) -> Queries:
        """The gradients that the method plans with a privacy budget. By default: one training in each round.

        Raises `InputError` with the reason if the method, with its options, sends anything that is no function of
        gradients and trainings. `steps` counts the steps of a training.
        """
        return Queries(steps())

    def max_numbers(self, task: Task) -> int:
        """The most numbers that one message may hold: a peer that sends more is refused before memory is taken."""
        return 2 * task.layout.size + 4096
