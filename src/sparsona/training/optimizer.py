"""SGD with momentum, and Adam, on flat buffers: what torch.optim does, as one operation a vector.

Sparsona has its own because weights that a mask stops must not move at all, whatever momentum and weight decay say,
and because an optimiser's memory is state that a method may keep over the rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from sparsona.message import Vector


@dataclass(frozen=True)
class Moments:
    """What an optimiser remembers: for a method that keeps it in its client state over the rounds."""

    step: int
    first: Vector
    second: Vector


class Optimizer(Protocol):
    """Moves weights along a gradient, which it may overwrite."""

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None: ...

    def moments(self) -> Moments: ...


NONE = np.zeros(0, np.float32)


def _memory(saved: Vector, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(saved.copy()).to(like.device) if len(saved) else torch.zeros_like(like)


class Sgd:
    """w <- w - rate * b with b <- momentum * b + g."""

    def __init__(self, rate: float, momentum: float, weights: torch.Tensor, moments: Moments | None) -> None:
        self._rate = rate
        self._momentum = momentum
        self._count = moments.step if moments else 0
        self._buffer = _memory(moments.first if moments else NONE, weights) if momentum else None

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        self._count += 1
        if self._buffer is not None:
            gradient = self._buffer.mul_(self._momentum).add_(gradient)
        weights.add_(gradient, alpha=-self._rate)

    def moments(self) -> Moments:
        return Moments(self._count, NONE if self._buffer is None else self._buffer.cpu().numpy(), NONE)


class Adam:
    """Kingma and Ba 2015 with their constants 0.9, 0.999 and 1e-8."""

    def __init__(self, rate: float, weights: torch.Tensor, moments: Moments | None) -> None:
        self._rate = rate
        self._count = moments.step if moments else 0
        self._first = _memory(moments.first if moments else NONE, weights)
        self._second = _memory(moments.second if moments else NONE, weights)

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        self._count += 1
        self._first.lerp_(gradient, 0.1)
        self._second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        root = self._second.sqrt().div_((1 - 0.999**self._count) ** 0.5).add_(1e-8)
        weights.addcdiv_(self._first, root, value=-self._rate / (1 - 0.9**self._count))

    def moments(self) -> Moments:
        return Moments(self._count, self._first.cpu().numpy(), self._second.cpu().numpy())
