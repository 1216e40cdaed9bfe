"""The server of an averaging method: its model, and the step by which the clients' mean update moves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsona.message import Vector
from sparsona.ops.moments import EMPTY, NONE, Moments
from sparsona.options import option


@dataclass(frozen=True)
class ServerStep:
    """A step along the clients' mean update D: Reddi and others, "Adaptive Federated Optimization", ICLR 2021."""

    optimizer: Literal["sgd", "adam", "yogi"] = option(
        "sgd", "server's step: along the mean update (sgd), or divided by the root of its second moment (adam, yogi)"
    )
    lr: float = option(1.0, "learning rate of the server (sgd with 1 and no momentum: the plain mean)", gt=0)
    momentum: float = option(0.0, "momentum of sgd (FedAvgM); beta1 of adam and yogi (their authors: 0.9)", ge=0, lt=1)
    beta2: float = option(0.99, "decay of the second moment (adam, yogi)", ge=0, lt=1)
    tau: float = option(1e-3, "number added to the root of the second moment (adam, yogi)", gt=0)

    @property
    def is_plain(self) -> bool:
        """True if the server adopts the mean."""
        return self.optimizer == "sgd" and self.lr == 1 and not self.momentum

    def direction(self, update: Vector, memory: Moments) -> tuple[Vector, Moments]:
        """Return the step from a mean update, and the optimiser's next state."""
        if self.is_plain:
            return update, EMPTY
        rate, kept = np.float32(self.lr), np.float32(self.momentum)
        if self.optimizer == "sgd":
            velocity = kept * memory.first + update if len(memory.first) else update
            return rate * velocity, Moments(memory.step + 1, velocity if self.momentum else NONE, NONE)
        last = memory.first if len(memory.first) else np.zeros_like(update)
        second = memory.second if len(memory.second) else np.full_like(update, self.tau**2)
        first = kept * last + (1 - kept) * update
        second = (adam if self.optimizer == "adam" else yogi)(second, update, self.beta2)
        root: Vector = np.sqrt(second)
        return rate * first / (root + np.float32(self.tau)), Moments(memory.step + 1, first, second)


PLAIN_STEP = ServerStep()
"""The server adopts the mean."""


@dataclass(frozen=True)
class ServerState:
    """The averaged weights w, and the state of the server's step."""

    weights: Vector
    moments: Moments = EMPTY

    def moved(self, update: Vector, step: ServerStep) -> ServerState:
        """Return the state after a step along the clients' mean `update`."""
        way, moments = step.direction(update, self.moments)
        return ServerState(self.weights + way, moments)

    def towards(self, mean: Vector, step: ServerStep) -> ServerState:
        """Return the state after a step towards the `mean` of the clients' weights; the plain step ends there."""
        return ServerState(mean) if step.is_plain else self.moved(mean - self.weights, step)


def adam(second: Vector, update: Vector, kept: float) -> Vector:
    """v <- beta2 v + (1 - beta2) D^2: Kingma, Ba, "Adam", ICLR 2015."""
    square: Vector = np.square(update)
    out: Vector = np.float32(kept) * second + np.float32(1 - kept) * square
    return out


def yogi(second: Vector, update: Vector, kept: float) -> Vector:
    """v <- v - (1 - beta2) D^2 sign(v - D^2): Zaheer and others, "Adaptive Methods for Nonconvex Optimization"."""
    square: Vector = np.square(update)
    out: Vector = second - np.float32(1 - kept) * square * np.sign(second - square)
    return out
