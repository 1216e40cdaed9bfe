"""Weight transforms: they change the trained weights for each batch before the module runs."""

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
    """Changes the weights for each batch before the module runs: a gate, a learnt mask, a scale.

    `own` are the transform's own numbers and their gradient, trained together with the weights by `config`, from
    `moments` on.
    """

    own: tuple[torch.Tensor, torch.Tensor] | None = None
    config: TrainConfig | None = None
    moments: Moments | None = None
    needs_pairs: bool = False
    """True if a batch of one sample cannot be trained on."""
    overwrites: bool = True
    """True if `forward` writes weights into the module and runs it. Otherwise ``flat.gradient`` is unused, and the
    module has the trained weights."""
    operations: int = 0
    """Operations of the transform itself in one sample's forward pass."""

    @abstractmethod
    def forward(self, flat: FlatModule, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch."""

    @abstractmethod
    def backward(self, flat: FlatModule, weights: torch.Tensor) -> GradientSpans | None:
        """Called after the loss's backward pass: sets the own gradient and returns the spans that this step moves.

        None means that all weights move, by ``flat.gradient``.
        """

    def active(self) -> tuple[Mask | None, Mask | None]:
        """Return the weights of the last forward pass, and of its gradient; None means all."""
        return None, None


@dataclass(frozen=True)
class AuxiliaryStep:
    """The step of a transform's own numbers."""

    gradient: torch.Tensor
    rule: StepRule

    @classmethod
    def of(cls, transform: WeightTransform, rate: float) -> AuxiliaryStep | None:
        """Return the step; None if the transform trains no numbers of its own."""
        if transform.own is None or transform.config is None:
            return None
        weights, gradient = transform.own
        return cls(gradient, StepRule(weights, transform.config, rate, saved=transform.moments))

    def step(self) -> None:
        """Take the step."""
        self.rule.step(self.gradient)
