"""A linear model as plain arrays: one row of weights per output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from sparsona.data.dataset import Array
from sparsona.message import Vector


@dataclass(frozen=True)
class LinearModel:
    """Outputs are `weight` times the inputs plus `bias`: log odds of classes and labels, or numbers."""

    weight: Array
    bias: Vector

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs for prepared inputs of any shape."""
        weight, bias = (torch.from_numpy(part).to(inputs.device) for part in (self.weight, self.bias))
        return torch.nn.functional.linear(inputs.flatten(1).float(), weight, bias)
