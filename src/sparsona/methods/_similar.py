"""What SPFL and SPFL-w share: a model a client on the server, and every so many rounds a pass that measures who is
like whom. All start that pass from the mean of their models; what they learn in it is thrown away."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from sparsona.local import Local
from sparsona.message import Message, Vector
from sparsona.method import TRAIN, Arrival, ClientId, Exchange, Fit, Method, Task, Turn
from sparsona.ops.mean import weighted_mean
from sparsona.ops.pairwise import Matrix, Similarity
from sparsona.vector import Layout


@dataclass(frozen=True)
class Server:
    """The models w_i of the clients that have moved away from `common`, the mean of the last measuring pass, and
    their mean now, from which the next pass starts."""

    common: Vector
    mean: Vector
    models: dict[ClientId, Vector]
    similarity: Similarity


@dataclass(frozen=True)
class Measuring(Method[Server, None], ABC):
    """Client i has its own model w_i, made of all clients' work by softmax(S_ij), S measured every `gamma` rounds.

    `steps`: gradient steps on every batch, the second on the same batch from where the first has led.
    """

    gamma: Annotated[int, Field(ge=1)] = 10
    steps: Literal["two", "one"] = "two"

    @abstractmethod
    def similarities(self, updates: Sequence[Vector], layout: Layout) -> dict[str, Matrix]:
        """S by stage, of what the clients learned from the common start."""

    @abstractmethod
    def mixed(self, server: Server, replies: Sequence[Arrival], layout: Layout) -> dict[ClientId, Vector]:
        """The new models of those who answered."""

    def exchanges(self, round: int) -> tuple[Exchange, ...]:
        return (Exchange("measure"), TRAIN) if round % self.gamma == 0 else (TRAIN,)

    def start_server(self, task: Task) -> Server:
        return Server(task.initial, task.initial, {}, Similarity((), {}))

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: Server, to: ClientId, turn: Turn) -> Message:
        if self._measures(turn.round, turn.exchange):
            return Message(weights=server.mean)
        return Message(weights=server.models.get(to, server.common))

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        start = down.vector("weights", local.layout.size)
        recipe = replace(local.recipe, repeats=2 if self.steps == "two" else 1)
        if self._measures(down.round, down.exchange):
            return Fit(None, Message(measured=local.train(start, recipe, stream="measure").weights - start), None)
        trained = local.train(start, recipe).weights
        return Fit(None, Message(update=trained - start, examples=local.examples), trained)

    def merge(self, server: Server, arrivals: Sequence[Arrival], turn: Turn) -> Server:
        layout, replies = turn.task.layout, list(arrivals)
        measured = [a for a in replies if "measured" in a.message]
        if measured:  # all stand at the mean now; a late reply below counts from there
            updates = [a.message.vector("measured", layout.size) for a in measured]
            stages, names = self.similarities(updates, layout), [a.client for a in measured]
            similarity = self.smoothed(server.similarity, names, stages)
            server = Server(server.mean, server.mean, {}, similarity)
        trained = [a for a in replies if "update" in a.message]
        if not trained:
            return server
        models = {**server.models, **self.mixed(server, trained, layout)}
        everyone = sorted({*turn.task.clients, *models})
        mean = weighted_mean((1.0, models.get(k, server.common)) for k in everyone)
        return replace(server, models=models, mean=mean)

    def smoothed(self, old: Similarity, names: Sequence[ClientId], stages: dict[str, Matrix]) -> Similarity:
        return old.updated(names, stages)

    def personal(self, client: None, down: Message, local: Local) -> Vector:
        return down.vector("weights", local.layout.size)

    def _measures(self, round: int, exchange: int) -> bool:
        return round % self.gamma == 0 and exchange == 0
