"""What may train beside the weights, and make of them those that the module runs with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sparsona.optimizer import Moments, Optimizer
from sparsona.recipe import Recipe
from sparsona.vector import Flat


class Companion(ABC):
    """Makes of the weights, batch by batch, those that the module runs with: a gate, a mask that is learnt, a scale.

    `own` is what it trains beside the weights, a vector and its gradient, by its own `recipe` and from `moments` on.
    """

    own: tuple[torch.Tensor, torch.Tensor] | None = None
    recipe: Recipe | None = None
    moments: Moments | None = None
    needs_pairs: bool = False
    overwrites: bool = True
    """Whether `forward` writes to the module's own weights; otherwise these are the ones that are trained."""

    @abstractmethod
    def forward(self, flat: Flat, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch."""

    @abstractmethod
    def backward(self, flat: Flat, weights: torch.Tensor) -> Sequence[slice] | None:
        """After the loss's backward pass: make ``flat.gradient`` that of `weights`, and set the own gradient.

        Returned are the spans that this step may move, always cut at the same places; None: everything moves.
        """


@dataclass(frozen=True)
class Beside:
    """The companion's own numbers and how they step."""

    weights: torch.Tensor
    gradient: torch.Tensor
    recipe: Recipe
    optimizer: Optimizer

    @classmethod
    def of(cls, companion: Companion, rate: float) -> Beside | None:
        if companion.own is None or companion.recipe is None:
            return None
        weights, gradient = companion.own
        recipe = companion.recipe
        return cls(weights, gradient, recipe, recipe.stepper(rate, weights, companion.moments))

    def step(self) -> None:
        if self.recipe.clip is not None:
            self.gradient.mul_((self.recipe.clip / (self.gradient.norm() + 1e-6)).clamp(max=1.0))
        if self.recipe.weight_decay:
            self.gradient.add_(self.weights, alpha=self.recipe.weight_decay)
        self.optimizer.step(self.weights, self.gradient)
