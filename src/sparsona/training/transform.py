"""Weight transforms: what makes of the trained weights, batch by batch, those that the module runs with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from sparsona.message import Mask
from sparsona.ops.moments import Moments
from sparsona.training.config import TrainConfig
from sparsona.training.step import GradientSpans, StepRule
from sparsona.training.vector import FlatModule

__all__ = ["AuxiliaryStep", "GradientSpans", "WeightTransform"]


class WeightTransform(ABC):
    """Makes of the weights, batch by batch, those that the module runs with: a gate, a learnt mask, a scale.

    `own` are numbers of its own that it trains together with the weights: a vector and its gradient. They are trained
    by `config`, from `moments` on.
    """

    own: tuple[torch.Tensor, torch.Tensor] | None = None
    config: TrainConfig | None = None
    moments: Moments | None = None
    needs_pairs: bool = False
    """Whether a batch of one sample cannot be trained on."""
    overwrites: bool = True
    """Whether `forward` writes weights into the module and runs it. If not, ``flat.gradient`` is not used, and the
    module's own weights are the trained ones."""
    operations: int = 0
    """The operations of its own part, for one sample's forward pass."""

    @abstractmethod
    def forward(self, flat: FlatModule, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch."""

    @abstractmethod
    def backward(self, flat: FlatModule, weights: torch.Tensor) -> GradientSpans | None:
        """Called after the loss's backward pass: sets the own gradient and returns the spans that this step moves.

        None means that all weights move, by ``flat.gradient``.
        """

    def active(self) -> tuple[Mask | None, Mask | None]:
        """The weights that the last step ran with, and those that it took the gradient of. None means all."""
        return None, None


@dataclass(frozen=True)
class AuxiliaryStep:
    """The step of a transform's own numbers."""

    gradient: torch.Tensor
    rule: StepRule

    @classmethod
    def of(cls, transform: WeightTransform, rate: float) -> AuxiliaryStep | None:
        """None where the transform trains no numbers of its own."""
        if transform.own is None or transform.config is None:
            return None
        weights, gradient = transform.own
        return cls(gradient, StepRule(weights, transform.config, rate, saved=transform.moments))

    def step(self) -> None:
        """Take the step."""
        self.rule.step(self.gradient)
