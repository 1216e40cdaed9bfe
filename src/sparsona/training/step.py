"""The step rule: how weights move along a gradient, in every local step of every method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import torch

from sparsona.training.config import TrainConfig
from sparsona.training.optimizer import EMPTY, Moments, Optimizer

GradientSpans: TypeAlias = Sequence[tuple[slice, torch.Tensor]]
"""Spans of the weights, always cut at the same places, and the gradient of each, which the step may write to."""


@dataclass(frozen=True)
class Pull:
    """The gradient strength * (w - towards) of a proximal term.

    It is added to the loss's gradient, or, with `apart`, it is a step of its own after every step.
    """

    towards: torch.Tensor
    strength: float
    apart: bool = False


class StepRule:
    """Moves a vector of weights in place: proximal pull, mask, clip, weight decay, optimiser, in this order.

    `mask` is 1 where weights move and 0 where they do not. `saved` are the moments to continue from. The norm that is
    clipped is that of what the mask lets through, before weight decay.

    >>> weights = torch.tensor([1.0, 1.0])
    >>> rule = StepRule(weights, TrainConfig(weight_decay=0.5), 0.1, mask=torch.tensor([1.0, 0.0]))
    >>> rule.step(torch.tensor([2.0, 2.0]))
    >>> weights
    tensor([0.7500, 1.0000])
    """

    def __init__(
        self,
        weights: torch.Tensor,
        config: TrainConfig,
        rate: float,
        *,
        mask: torch.Tensor | None = None,
        pull: Pull | None = None,
        saved: Moments = EMPTY,
    ) -> None:
        self._weights = weights
        self._config = config
        self._rate = rate
        self._mask = mask
        self._pull = pull
        self._saved = saved
        self._spans: dict[tuple[int, int], StepRule] = {}

    @cached_property
    def _optimizer(self) -> Optimizer:
        """Made by the first step: where only spans move, no moments of the whole vector are held."""
        return self._config.make_optimizer(self._rate, self._weights, self._saved)

    def step(self, gradient: torch.Tensor) -> None:
        """Move the weights along a loss's gradient, which is overwritten."""
        self.prepare(gradient)
        self._move(gradient)

    def prepare(self, gradient: torch.Tensor) -> None:
        """Turn a loss's gradient into the one that the optimiser gets."""
        self._add_pull(gradient)
        if self._config.clip is not None:
            self._apply_mask(gradient)
            clip([gradient], self._config.clip)
        self._add_decay(gradient)

    def step_spans(self, spans: GradientSpans) -> None:
        """Move only these spans of a vector. The norm that is clipped is that of all of them together.

        Each span has an optimiser of its own: the moments of spans that stand still do not change.
        """
        parts = [(self._span(span), gradient) for span, gradient in spans]
        for rule, gradient in parts:
            rule._add_pull(gradient)
        if self._config.clip is not None:
            for rule, gradient in parts:
                rule._apply_mask(gradient)
            clip([gradient for _, gradient in parts], self._config.clip)
        for rule, gradient in parts:
            rule._add_decay(gradient)
            rule._move(gradient)

    def moments(self) -> Moments:
        """What the optimiser remembers."""
        return self._optimizer.moments()

    def _add_pull(self, gradient: torch.Tensor) -> None:
        if self._pull is not None and not self._pull.apart:
            gradient.add_(self._weights - self._pull.towards, alpha=self._pull.strength)

    def _apply_mask(self, vectors: torch.Tensor) -> None:
        if self._mask is not None:
            vectors.mul_(self._mask)

    def _add_decay(self, gradient: torch.Tensor) -> None:
        """Add the weight decay and mask the sum: a full mask then gives the same bits as none."""
        if self._config.weight_decay:
            gradient.add_(self._weights, alpha=self._config.weight_decay)
        self._apply_mask(gradient)

    def _move(self, gradient: torch.Tensor) -> None:
        self._optimizer.step(self._weights, gradient)
        if self._pull is not None and self._pull.apart:
            distance = self._weights - self._pull.towards
            self._apply_mask(distance)
            self._weights.add_(distance, alpha=-self._rate * self._pull.strength)

    def _span(self, span: slice) -> StepRule:
        key = span.start, span.stop
        if key not in self._spans:
            mask = None if self._mask is None else self._mask[span]
            pull = None if self._pull is None else replace(self._pull, towards=self._pull.towards[span])
            self._spans[key] = StepRule(self._weights[span], self._config, self._rate, mask=mask, pull=pull)
        return self._spans[key]


def clip(gradients: Sequence[torch.Tensor], most: float) -> None:
    """Scale gradients in place so that their common norm is at most `most`.

    >>> gradient = torch.tensor([3.0, 4.0])
    >>> clip([gradient], 1.0)
    >>> gradient
    tensor([0.6000, 0.8000])
    """
    norms = [gradient.norm() for gradient in gradients]
    norm = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
    scale = (most / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale)
