"""Several models per client: their initial weights, and their mixture as one model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import torch

from sparsona.chance import Chance
from sparsona.layout import Forward, Layout
from sparsona.message import Vector


class Predicting(Protocol):
    """A model that is more than one vector."""

    def predict(self, forward: Forward, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the model for a batch of inputs."""


@dataclass(frozen=True)
class Mixture:
    """Predicts by the mean of the models' probabilities under the client's mixture; of numbers, by their mean.

    `kind` says what the outputs are: scores of classes (None), log odds of labels, or numbers.
    """

    models: tuple[Vector | Predicting, ...]
    mixture: Vector
    kind: Literal["regression", "multilabel"] | None = field(default=None, metadata={"omit": None})

    def predict(self, forward: Forward, inputs: torch.Tensor) -> torch.Tensor:
        """Return the mixed outputs: log probabilities, log odds, or numbers."""
        return mixed([outputs_of(model, forward, inputs) for model in self.models], self.mixture, self.kind)


def outputs_of(model: Vector | Predicting, forward: Forward, inputs: torch.Tensor) -> torch.Tensor:
    """Return the outputs of one model."""
    return forward(model, inputs) if isinstance(model, np.ndarray) else model.predict(forward, inputs)


def mixed(
    outputs: Sequence[torch.Tensor], shares: Vector, kind: Literal["regression", "multilabel"] | None = None
) -> torch.Tensor:
    """Return the outputs of a mixture of models with these outputs."""
    weighted = [(float(share), one) for share, one in zip(shares, outputs, strict=True)]
    if kind == "regression":
        return torch.stack([share * one for share, one in weighted]).sum(0)
    if kind == "multilabel":
        odds = torch.stack([share * one.sigmoid() for share, one in weighted]).sum(0).clamp(1e-7, 1 - 1e-7)
        return odds.logit()
    return torch.stack([share * one.softmax(1) for share, one in weighted]).sum(0).clamp(min=1e-30).log()


def initial_models(initial: Vector, layout: Layout, chance: Chance, count: int) -> tuple[Vector, ...]:
    """Return the initial model and others, the same for the same seed.

    The entries of a tensor have one distribution, so shuffling them within the tensor is a new draw.
    """
    models = [initial]
    for number in range(1, count):
        out = initial.copy()
        for i, tensor in enumerate(layout.tensors):
            chance.rng(f"initial model {number}", layer=i).shuffle(out[tensor.slice])
        models.append(out)
    return tuple(models)
