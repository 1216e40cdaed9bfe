"""Several models per client: their initial weights, and their mixture as one model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
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


def best_share(one: torch.Tensor, other: torch.Tensor, targets: npt.NDArray[Any]) -> float:
    """Return the share of `one`, of 0, 0.1, ..., 1, for which the mixture of both outputs is right most often.

    Few rows leave many ties, of which the mean is taken. Without rows it is 0.5.

    >>> sure, wrong = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.2, 0.8]]).log()
    >>> round(best_share(sure, wrong, np.array([0])), 2)
    0.75
    """
    shares = np.linspace(0, 1, 11)
    mixtures = (mixed([one, other], np.array([share, 1 - share], np.float32)) for share in shares)
    right = np.array([(mixture.argmax(1).numpy() == targets).sum() for mixture in mixtures])
    return float(shares[right == right.max()].mean())


@dataclass(frozen=True)
class OutputMixture:
    """Predicts by the weighted sum of the models' outputs, before any softmax."""

    models: tuple[Vector, ...]
    mixture: Vector

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Return the mixed outputs."""
        return mixed([forward(model, inputs) for model in self.models], self.mixture, "regression")


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
