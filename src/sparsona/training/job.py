"""One local training: its settings and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

import torch

from sparsona.data.dataset import Array, Indices
from sparsona.errors import Diverged
from sparsona.message import Mask, Vector
from sparsona.ops.moments import Moments
from sparsona.privacy.mechanism import Query
from sparsona.training.config import TrainConfig
from sparsona.training.step import Proximal
from sparsona.training.transform import WeightTransform

__all__ = ["LossTerm", "Proximal", "TrainJob", "Trained"]

LossTerm: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""A term of the loss: of outputs, embeddings and targets of a batch, one number per example."""


@dataclass(frozen=True)
class TrainJob:
    """One local training as a client asks for it.

    `batches` gives the indices of each batch's samples and, where samples are weighted, their weights. `loss` is added
    to the loss of each example. `rate` is the learning rate of this round, `transform_rate` that of the transform's own
    numbers. Within `seeded`, torch's generator is the client's. With a privacy budget, `queries` take the place of the
    batches, one for each step.
    """

    start: Vector
    config: TrainConfig
    batches: Iterator[tuple[Indices, Array | None]]
    rate: float
    seeded: AbstractContextManager[None]
    mask: Mask | None = None
    proximal: Proximal | None = None
    moments: Moments | None = None
    transform: WeightTransform | None = None
    transform_rate: float = 0.0
    loss: LossTerm | None = None
    queries: Iterator[tuple[Indices, Query]] | None = None

    @property
    def is_descent(self) -> bool:
        """Return whether the step rule is only w <- w - rate * (g + weight_decay * w) within the mask."""
        bare = self.proximal is None and self.transform is None and self.loss is None
        return bare and self.config.clip is None and not self.config.has_moments

    def diverged(self, loss: float, examples: int) -> Diverged:
        """Return the error about a loss or weights that are not finite."""
        where = f"after {examples} samples at learning rate {self.rate:g}"
        return Diverged(f"the loss is {loss:g} {where}: lower it (lr=auto finds one), or set clip")


@dataclass(frozen=True)
class Trained:
    """The outcome of a training. `examples` counts the samples seen, `loss` is their mean loss.

    `moments` are the optimiser's, `transform` those of the transform's own numbers.
    """

    weights: Vector
    loss: float
    examples: int
    moments: Moments
    transform: Moments | None = None
