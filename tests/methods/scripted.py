"""For tests of methods: a client whose training is given, on a net of a few weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from sparsona.chance import Chance
from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import Arrival, Method, Model, ServerContext, Task
from sparsona.ops.moments import Moments
from sparsona.training.config import TrainConfig
from sparsona.training.job import Trained
from sparsona.training.vector import FlatModule


def task(*module: nn.Module, clients: tuple[str, ...] = ("a", "b"), classes: int = 2) -> Task:
    flat = FlatModule(nn.Sequential(*module))
    return Task(flat.layout, np.zeros(flat.layout.size, np.float32), clients, 9, (3,), classes, Chance(3))


def floats(*numbers: float) -> Vector:
    return np.array(numbers, np.float32)


def vector_of(model: Model | None) -> Vector:
    """The weights of a model that is a plain vector."""
    assert isinstance(model, np.ndarray)
    return model


@dataclass(frozen=True)
class Batch:
    """A minibatch whose gradient is given."""

    at: Callable[[Vector], Vector]
    total: float = 1.0
    seen: int = 1

    def gradient(self, weights: Vector) -> Vector:
        return self.at(weights)


@dataclass(frozen=True)
class Scripted:
    """A client whose training adds a change, and whose gradient is a given function."""

    task: Task
    change: Vector
    slope: Callable[[Vector], Vector] = np.zeros_like
    steps: int = 1
    client: str = "a"
    round: int = 0
    examples: int = 20
    rate: float = 0.5
    config: TrainConfig = field(default_factory=TrainConfig)
    labels: tuple[int, ...] = (0, 0, 1)
    max_epochs: int | None = None

    @property
    def layout(self) -> Layout:
        return self.task.layout

    def targets(self) -> npt.NDArray[np.int64]:
        return np.array(self.labels)

    def some(self, share: float, purpose: str) -> Scripted:
        return self

    def train(self, start: Vector, config: TrainConfig | None = None, **how: Any) -> Trained:
        return Trained(start + self.change, 0.1, self.examples, Moments(0, self.change, self.change))

    def iterate(self, start: Any, step: Any, config: TrainConfig | None = None, **how: Any) -> Any:
        count = self.steps if config is None or config.steps is None else config.steps
        for _ in range(count):
            start = step(start, (Batch(self.slope),))
        return start

    def gradient(self, weights: Vector, batch: int | None = None) -> Vector:
        return self.slope(weights)


def answered(
    method: Method[Any, Any], server: Any, replies: Sequence[tuple[str, Message]], where: Task, round: int = 0
) -> Any:
    """The server's state after these replies."""
    arrivals = [Arrival(client, reply, round) for client, reply in replies]
    return method.aggregate(server, arrivals, ServerContext(where, round))
