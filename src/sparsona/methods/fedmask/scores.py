"""FedMask's trained scores: one per weight, which make the mask."""

import numpy as np
import torch

from sparsona.message import Mask, Vector
from sparsona.training.config import TrainConfig
from sparsona.training.transform import GradientSpans, WeightTransform
from sparsona.training.vector import FlatModule


class MaskScores(WeightTransform):
    """Trains one score per weight of `region`; a weight is active if its score is not negative and it is alive.

    The mask is [sigmoid(score) >= 1/2]; its gradient goes straight through to the sigmoid. A weight counts in the
    gradient of its score in the given `unit`, so that one rate fits layers of any width.
    """

    def __init__(
        self,
        scores: Vector,
        region: Mask,
        alive: Mask,
        config: TrainConfig,
        device: str = "cpu",
        unit: Vector | None = None,
    ) -> None:
        self.scores = torch.from_numpy(scores.copy()).to(device)
        self.own = (self.scores, torch.zeros_like(self.scores))
        self.config = config
        self._region = torch.from_numpy(np.flatnonzero(region)).to(device)
        self._alive = torch.from_numpy(alive).to(device)
        self._unit = torch.ones_like(self.scores) if unit is None else torch.from_numpy(unit).to(device)

    def forward(self, flat: FlatModule, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            flat.weights[: len(weights)] = weights
            flat.weights[self._region] *= (self.scores >= 0) & self._alive
        outputs: torch.Tensor = flat.module(inputs)
        return outputs

    def backward(self, flat: FlatModule, weights: torch.Tensor) -> GradientSpans | None:
        assert self.own is not None
        soft = self.scores.sigmoid()
        slope = flat.gradient[self._region] * weights[self._region] / self._unit * soft * (1 - soft)
        self.own[1].copy_(slope * self._alive)
        return None
