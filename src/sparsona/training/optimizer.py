"""SGD with momentum, and Adam, on flat vectors.

They compute what torch.optim computes. Sparsona has its own because a weight that a mask stops must not move at all,
whatever momentum and weight decay say, and because a method may keep an optimiser's moments over the rounds.
"""

from __future__ import annotations

from typing import Protocol

import torch

from sparsona.message import Vector
from sparsona.ops.moments import NONE, Moments


class Optimizer(Protocol):
    """Moves weights along a gradient, in place."""

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move the weights by one gradient, in place."""

    def moments(self) -> Moments:
        """Return the moments to continue from."""


class Sgd:
    """w <- w - rate * b with b <- momentum * b + g. Without momentum a step is one in-place axpy."""

    def __init__(self, rate: float, momentum: float, like: torch.Tensor, saved: Moments) -> None:
        self._rate = rate
        self._momentum = momentum
        self._count = saved.step
        self._buffer = _vector(saved.first, like) if momentum else None

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move the weights by one gradient, in place."""
        self._count += 1
        if self._buffer is not None:
            gradient = self._buffer.mul_(self._momentum).add_(gradient)
        weights.add_(gradient, alpha=-self._rate)

    def moments(self) -> Moments:
        """Return the moments to continue from."""
        return Moments(self._count, NONE if self._buffer is None else _copy(self._buffer), NONE)


class Adam:
    """Kingma and Ba 2015 with their constants 0.9, 0.999 and 1e-8."""

    def __init__(self, rate: float, like: torch.Tensor, saved: Moments) -> None:
        self._rate = rate
        self._count = saved.step
        self._first = _vector(saved.first, like)
        self._second = _vector(saved.second, like)

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move the weights by one gradient, in place."""
        self._count += 1
        self._first.lerp_(gradient, 0.1)
        self._second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        # w - rate * m / (sqrt(v) + 1e-8) with the unbiased m and v, all factors moved into the denominator
        factor = (0.9**self._count - 1) / self._rate
        root = factor / (1 - 0.999**self._count) ** 0.5
        weights.addcdiv_(self._first, self._second.sqrt().mul_(root).add_(1e-8 * factor))

    def moments(self) -> Moments:
        """Return the moments to continue from."""
        return Moments(self._count, _copy(self._first), _copy(self._second))


def _copy(tensor: torch.Tensor) -> Vector:
    found: Vector = tensor.cpu().numpy().copy()
    return found


def _vector(saved: Vector, like: torch.Tensor) -> torch.Tensor:
    """Return a saved vector on the device of `like`; zeros if it is empty."""
    return torch.tensor(saved, device=like.device) if len(saved) else torch.zeros_like(like)
