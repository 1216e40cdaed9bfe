"""SGD with momentum, and Adam, on flat (..., n) tensors: one vector, or a row for each of several clients.

They compute what torch.optim computes. Sparsona has its own because a weight that a mask stops must not move at all,
whatever momentum and weight decay say; because a method may keep an optimiser's moments over the rounds; and because
several clients step at once, each row with its own count of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import torch

from sparsona.message import Vector

NONE = np.zeros(0, np.float32)
RowNumber: TypeAlias = float | torch.Tensor
"""One number for all rows, or a (rows, 1) tensor with one for each."""


@dataclass(frozen=True)
class Moments:
    """What an optimiser remembers of one client: steps taken, first and second moment. An empty vector means zeros."""

    step: int
    first: Vector
    second: Vector


EMPTY = Moments(0, NONE, NONE)


class Optimizer(Protocol):
    """Moves weights along a gradient, in place. The weights may be the first rows of those that it was made for."""

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move the weights by one gradient, in place."""

    def count(self, rows: int) -> None:
        """Count a step of the first rows that was taken without the optimiser."""

    def moments(self, row: int = 0) -> Moments:
        """The memory of one row, to continue from."""


class Sgd:
    """w <- w - rate * b with b <- momentum * b + g. Without momentum a step is one in-place axpy."""

    def __init__(self, rate: float, momentum: float, like: torch.Tensor, saved: Sequence[Moments]) -> None:
        self._rate = rate
        self._momentum = momentum
        self._counts = [moments.step for moments in saved]
        self._buffer = memory([moments.first for moments in saved], like) if momentum else None

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move the weights by one gradient, in place."""
        self.count(rows_of(weights))
        if self._buffer is not None:
            gradient = first_rows(self._buffer, weights).mul_(self._momentum).add_(gradient)
        weights.add_(gradient, alpha=-self._rate)

    def count(self, rows: int) -> None:
        """Count a step of the first rows that was taken without the optimiser."""
        for row in range(rows):
            self._counts[row] += 1

    def moments(self, row: int = 0) -> Moments:
        """The momentum of one row; empty without momentum."""
        return Moments(self._counts[row], NONE if self._buffer is None else row_of(self._buffer, row), NONE)


class Adam:
    """Kingma and Ba 2015 with their constants 0.9, 0.999 and 1e-8."""

    def __init__(self, rate: float, like: torch.Tensor, saved: Sequence[Moments]) -> None:
        self._rate = rate
        self._counts = [moments.step for moments in saved]
        self._first = memory([moments.first for moments in saved], like)
        self._second = memory([moments.second for moments in saved], like)

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move the weights by one gradient, in place."""
        rows = rows_of(weights)
        self.count(rows)
        first, second = first_rows(self._first, weights), first_rows(self._second, weights)
        first.lerp_(gradient, 0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        # w - rate * m / (sqrt(v) + 1e-8) with the unbiased m and v, all factors moved into the denominator
        factors = [(0.9**count - 1) / self._rate for count in self._counts[:rows]]
        roots = [factor / (1 - 0.999**count) ** 0.5 for factor, count in zip(factors, self._counts, strict=False)]
        weights.addcdiv_(first, second.sqrt().mul_(row_number(roots)).add_(row_number([1e-8 * f for f in factors])))

    def count(self, rows: int) -> None:
        """Count a step of the first rows that was taken without the optimiser."""
        for row in range(rows):
            self._counts[row] += 1

    def moments(self, row: int = 0) -> Moments:
        """Both moments of one row."""
        return Moments(self._counts[row], row_of(self._first, row), row_of(self._second, row))


def row_number(values: Sequence[float]) -> RowNumber:
    """The values of the rows: one number where all are the same, else a column.

    >>> row_number([2.0, 2.0]), row_number([2.0, 3.0])
    (2.0, tensor([[2.],
            [3.]]))
    """
    return values[0] if len(set(values)) == 1 else torch.tensor(values).unsqueeze(1)


def rows_of(weights: torch.Tensor) -> int:
    """The number of models in a (..., n) tensor: 1 for a vector."""
    return 1 if weights.ndim == 1 else len(weights)


def row_of(tensor: torch.Tensor, row: int) -> Vector:
    """A copy of one row; a vector is its own only row."""
    found: Vector = (tensor if tensor.ndim == 1 else tensor[row]).cpu().numpy().copy()
    return found


def first_rows(tensor: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The rows of `tensor` that belong to `weights`, which are the first ones."""
    return tensor if tensor.shape == weights.shape else tensor[: len(weights)]


def memory(saved: Sequence[Vector], like: torch.Tensor) -> torch.Tensor:
    """Saved vectors as a tensor of the shape of `like`; zero where a vector is empty."""
    out = torch.zeros_like(like)
    for row, vector in zip(out.view(len(saved), -1), saved, strict=True):
        if len(vector):
            row.copy_(torch.from_numpy(vector))
    return out
