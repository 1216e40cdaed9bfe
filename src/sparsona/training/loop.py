"""The steps of one training, with the trained weights or through a weight transform."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import torch

from sparsona.ops.moments import Moments
from sparsona.training.job import TrainJob
from sparsona.training.step import StepRule
from sparsona.training.transform import AuxiliaryStep, WeightTransform
from sparsona.training.vector import FlatModule


class TrainSteps(Protocol):
    """A forward pass, then, after the loss's backward pass, a step."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch."""

    def step(self) -> None:
        """Take a step after the loss's backward pass."""

    def finish(self) -> tuple[Moments, Moments | None]:
        """Leave the trained weights in the module; return the moments of the weights and of the transform."""


class PlainSteps:
    """Steps of the module's own weights."""

    def __init__(self, flat: FlatModule, job: TrainJob) -> None:
        self._flat = flat
        self._gradient = flat.gradient
        self._rule = rule_of(job, flat.weights)
        self.step = partial(self._rule.step, self._gradient)
        """Take a step after the loss's backward pass."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch."""
        self._gradient.zero_()
        outputs: torch.Tensor = self._flat.module(inputs)
        return outputs

    def finish(self) -> tuple[Moments, None]:
        """The moments of the weights."""
        return self._rule.moments(), None


class TransformedSteps:
    """Steps of weights that a transform changes for each batch of the module."""

    def __init__(self, flat: FlatModule, job: TrainJob, transform: WeightTransform) -> None:
        self._flat = flat
        self._transform = transform
        own = flat.weights
        self._weights = own.clone() if transform.overwrites else own
        self._rule = rule_of(job, self._weights)
        self._auxiliary = AuxiliaryStep.of(transform, job.transform_rate)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch under transformed weights."""
        if self._transform.overwrites:
            self._flat.gradient.zero_()
        return self._transform.forward(self._flat, self._weights, inputs)

    def step(self) -> None:
        """Take a step of the weights and of the transform's own numbers."""
        spans = self._transform.backward(self._flat, self._weights)
        if self._auxiliary is not None:
            self._auxiliary.step()
        if spans is None:
            self._rule.step(self._flat.gradient)
        else:
            self._rule.step_spans(spans)

    def finish(self) -> tuple[Moments, Moments | None]:
        """Leave the trained weights in the module; return the moments of both."""
        if self._transform.overwrites:
            self._flat.weights[: len(self._weights)] = self._weights
        return self._rule.moments(), None if self._auxiliary is None else self._auxiliary.rule.moments()


def steps_of(flat: FlatModule, job: TrainJob) -> TrainSteps:
    """Return the steps of a training from the module's present weights."""
    return PlainSteps(flat, job) if job.transform is None else TransformedSteps(flat, job, job.transform)


def rule_of(job: TrainJob, weights: torch.Tensor) -> StepRule:
    """Return the step rule of one client's training."""
    return StepRule(weights, job.config, job.rate, mask=job.mask, proximal=job.proximal, saved=job.moments)
