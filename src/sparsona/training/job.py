"""One local training: what is asked for, the steps, through a weight transform or not, and what comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch

from sparsona.data.dataset import Array, Indices
from sparsona.errors import Diverged
from sparsona.message import Mask, Vector
from sparsona.ops.moments import Moments
from sparsona.privacy.mechanism import Query
from sparsona.training.config import TrainConfig
from sparsona.training.step import GradientSpans, Proximal, StepRule
from sparsona.training.vector import FlatModule


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


class TrainSteps:
    """The steps of one training from the module's present weights: a forward pass, the loss's backward pass, a step."""

    def __init__(self, flat: FlatModule, job: TrainJob) -> None:
        self._flat, self._transform = flat, job.transform
        self._overwrites = job.transform is not None and job.transform.overwrites
        self._weights = flat.weights.clone() if self._overwrites else flat.weights
        self._rule = rule_of(job, self._weights)
        self._auxiliary: StepRule | None = None
        self.step: Callable[[], None]
        """Take a step after the loss's backward pass."""
        if job.transform is None:
            self.step = partial(self._rule.step, flat.gradient)
            return
        self.step = partial(self._step, job.transform)
        if job.transform.own is not None and job.transform.config is not None:
            own, config = job.transform.own[0], job.transform.config
            self._auxiliary = StepRule(own, config, job.transform_rate, saved=job.transform.moments)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch, under transformed weights if there is a transform."""
        if self._transform is None or self._overwrites:
            self._flat.gradient.zero_()
        if self._transform is not None:
            return self._transform.forward(self._flat, self._weights, inputs)
        outputs: torch.Tensor = self._flat.module(inputs)
        return outputs

    def _step(self, transform: WeightTransform) -> None:
        """Take a step of the weights and of the transform's own numbers."""
        spans = transform.backward(self._flat, self._weights)
        if self._auxiliary is not None and transform.own is not None:
            self._auxiliary.step(transform.own[1])
        if spans is None:
            self._rule.step(self._flat.gradient)
        else:
            self._rule.step_spans(spans)

    def finish(self) -> tuple[Moments, Moments | None]:
        """Leave the trained weights in the module; return the moments of the weights and of the transform."""
        if self._overwrites:
            self._flat.weights[: len(self._weights)] = self._weights
        return self._rule.moments(), None if self._auxiliary is None else self._auxiliary.moments()


def rule_of(job: TrainJob, weights: torch.Tensor) -> StepRule:
    """Return the step rule of one client's training."""
    return StepRule(weights, job.config, job.rate, mask=job.mask, proximal=job.proximal, saved=job.moments)
