"""A personal model of several: the mean of their probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from sparsona.message import Vector


@dataclass(frozen=True)
class Mixture:
    """Predicts by the mean of the models' probabilities under the client's mixture."""

    models: tuple[Vector, ...]
    mixture: Vector

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """The logarithm of the mixed probabilities."""
        parts = [
            float(share) * forward(model, inputs).softmax(1)
            for model, share in zip(self.models, self.mixture, strict=True)
        ]
        return torch.stack(parts).sum(0).clamp(min=1e-30).log()
