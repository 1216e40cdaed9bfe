"""The contract between a method and the engine that runs it.

A method is a frozen dataclass of hyper-parameters with six functions. The server's state is `S`, each client's is `C`:
frozen dataclasses of vectors, positions and numbers, which the engine stores, checkpoints and ships. A method knows
neither engine nor wire; both sides exchange messages and see nothing else of each other.
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
from sparsona.errors import InputError
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
        """Return the outputs of the model for a batch of inputs."""


@runtime_checkable
class SparsePredictor(Predictor, Protocol):
    """A predictor that one set of sparse weights can represent, so it can be exported as a small net."""

    def vector(self) -> Vector:
        """Return the weights that represent the predictor."""

    def signature(self) -> Vector:
        """Return the numbers by which a report compares clients' models."""


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
"""A finding of a method for reports."""


@dataclass(frozen=True)
class Task:
    """The facts that both sides know before round 1; `initial` follows from the seed and is not sent."""

    layout: Layout
    initial: Vector = field(repr=False)
    clients: tuple[ClientId, ...]
    rounds: int
    shape: tuple[int, ...]
    classes: int
    chance: Chance


@dataclass(frozen=True)
class Phase:
    """One send-fit-aggregate step of a round. `everyone` asks all clients, not only the sampled ones.

    `joining`: a client that joins after training runs this phase of round 0 first, so that the server knows it.
    """

    name: str
    everyone: bool = False
    joining: bool = False


TRAIN = Phase("train")


@dataclass(frozen=True)
class Queries:
    """The number of gradients that a method needs of a client's rows: per round, per use of its model, and once.

    With a privacy budget each one is a query, and the noise is chosen for the planned number. A client that has
    answered that many takes part no longer, so a method that plans too few loses clients, not privacy.
    """

    round: float
    use: int = 0
    once: int = 0


@dataclass(frozen=True)
class ServerContext:
    """The server's round (from 0) and phase; `unanswered` are the clients whose replies are still to come."""

    task: Task
    round: int
    phase: Phase = TRAIN
    unanswered: frozenset[ClientId] = frozenset()

    def rng(self, purpose: str, client: ClientId = "", layer: int = 0) -> np.random.Generator:
        """Return the server's generator for one purpose in this round."""
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
        """Return the downlink that the reply answers."""
        return self.find_sent()


class _Same(Enum):
    STATE = "the same state"


@dataclass(frozen=True)
class Fit(Generic[C]):
    """The result of a client's turn: its new state, its reply, and its model after training (the `post` point).

    `model` is None in a phase without training. `if_lost` is the next state if the reply never arrives, by default the
    same one. The loop keeps both until it knows.
    """

    state: C
    reply: Message
    model: Model | None
    if_lost: C | Literal[_Same.STATE] = _Same.STATE

    @property
    def lost(self) -> C:
        """Return the next state if the reply is lost."""
        return self.state if isinstance(self.if_lost, _Same) else self.if_lost


@dataclass(frozen=True)
class Method(ABC, Generic[S, C]):
    """A federated method. Subclasses are frozen dataclasses of options: final, or abstract families that share code."""

    private: ClassVar[tuple[str, ...]] = ()
    """The fields of the client's state that never travel: :func:`sparsona.testing.check_method` looks for them."""

    feedback: ClassVar[str] = ""
    """The field of the client's state with the residual of error feedback, if any."""

    buffers: ClassVar[Literal["averaged", "own"]] = "averaged"
    """BatchNorm's statistics: averaged by the loop, or each client's own. They belong to the model that was trained
    last, so a method with personal models leaves them at the clients."""

    unused: ClassVar[tuple[str, ...]] = ()
    """The training settings that the method replaces by options; setting one gives a warning."""

    average: ClassVar[float] = 0.0
    """The method's default of `personal.average`."""

    needs_classes: ClassVar[str] = ""
    """Why the method trains on classes only. Empty: it predicts numbers, too."""

    no_budget: ClassVar[str] = ""
    """Why the method has no form with a privacy budget. Empty: it has one, which :meth:`queries` plans."""

    alone: ClassVar[bool] = False
    """True if clients train alone, without any message."""

    @abstractmethod
    def start_server(self, task: Task) -> S:
        """Return the server's state before the first round."""

    @abstractmethod
    def start_client(self, task: Task, client: ClientId) -> C:
        """Return the state of `client` before its first turn, whenever it joins."""

    @abstractmethod
    def send(self, server: S, to: ClientId, context: ServerContext) -> Message:
        """Return the downlink for one client, known or new, without side effects."""

    @abstractmethod
    def fit(self, state: C, down: Message, local: Local) -> Fit[C]:
        """Take the client's turn: read the downlink, train, answer."""

    @abstractmethod
    def aggregate(self, server: S, arrivals: Sequence[Arrival], context: ServerContext) -> S:
        """Return the server's state after the replies: at least one, sorted by client.

        Each message is decoded on access, so one pass over `arrivals` holds one message at a time.
        """

    @abstractmethod
    def personal_model(self, state: C, down: Message, local: Local) -> Model:
        """Assemble the client's model from its state and the downlink; it is tested, saved and exported."""

    def phases(self, round: int) -> tuple[Phase, ...]:
        """Return the phases of this round, of which the last one trains; see `local.phase` and `context.phase`."""
        return (TRAIN,)

    def adapt(self, state: C, down: Message, local: Local) -> Fit[C]:
        """Take the turn of a client that joins after training; by default, `fit`."""
        return self.fit(state, down, local)

    def artefacts(self, server: S) -> Mapping[str, Artefact]:
        """Return the server's findings that a report can draw, by name: a network, a similarity."""
        return {}

    def queries(self, steps: Steps) -> Queries:
        """Return the planned gradients with a privacy budget; by default, one training per round.

        Raises `InputError` with the reason if the method, with its options, sends anything but functions of gradients
        and trainings. `steps` counts the steps of a training.
        """
        if self.no_budget:
            raise InputError(f"{self.no_budget}: it has no private form")
        return Queries(steps())

    def max_numbers(self, task: Task) -> int:
        """Return the limit of numbers per message; a longer one is refused before memory is taken."""
        return 2 * task.layout.size + 4096
