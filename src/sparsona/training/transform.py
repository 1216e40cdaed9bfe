"""What may train beside the weights, and make of them those that the module runs with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from sparsona.message import Mask
from sparsona.training.config import TrainConfig
from sparsona.training.optimizer import Moments, Optimizer
from sparsona.training.vector import Flat

GradientSpans: TypeAlias = Sequence[tuple[slice, torch.Tensor]]
"""Spans of the weights, always cut at the same places, and the gradient of each, which the step may write to."""


class WeightTransform(ABC):
    """Makes of the weights, batch by batch, those that the module runs with: a gate, a mask that is learnt, a scale.

    `own` is what it trains beside the weights, a vector and its gradient, by its own `config` and from `moments` on.
    """

    own: tuple[torch.Tensor, torch.Tensor] | None = None
    config: TrainConfig | None = None
    moments: Moments | None = None
    needs_pairs: bool = False
    overwrites: bool = True
    """Whether `forward` runs the module, with weights that it writes there; otherwise these are the ones that are
    trained, and ``flat.gradient`` is not used."""
    operations: int = 0
    """Those of its own part for one sample's forward pass."""

    @abstractmethod
    def forward(self, flat: Flat, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch."""

    @abstractmethod
    def backward(self, flat: Flat, weights: torch.Tensor) -> GradientSpans | None:
        """After the loss's backward pass: what this step may move, and set the own gradient. None: everything moves,
        by ``flat.gradient``.
        """

    def active(self) -> tuple[Mask | None, Mask | None]:
        """The weights that the last step ran with, and those that it took the gradient of; None: all."""
        return None, None


@dataclass(frozen=True)
class AuxiliaryStep:
    """The transform's own numbers and how they step."""

    weights: torch.Tensor
    gradient: torch.Tensor
    config: TrainConfig
    optimizer: Optimizer

    @classmethod
    def of(cls, transform: WeightTransform, rate: float) -> AuxiliaryStep | None:
        if transform.own is None or transform.config is None:
            return None
        weights, gradient = transform.own
        config = transform.config
        return cls(weights, gradient, config, config.stepper(rate, weights, transform.moments))

    def step(self) -> None:
        if self.config.clip is not None:
            self.gradient.mul_((self.config.clip / (self.gradient.norm() + 1e-6)).clamp(max=1.0))
        if self.config.weight_decay:
            self.gradient.add_(self.weights, alpha=self.config.weight_decay)
        self.optimizer.step(self.weights, self.gradient)
