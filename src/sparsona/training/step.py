"""The step rule: how weights move along a gradient, in every local step of every method.

This module defines the rule. :class:`StepRule` is its torch form, and the reference for the faster forms: the kernel of
the compiled trainer (:func:`sparsona.training.kernels.descend`) and the gradients of a method's own steps
(:meth:`sparsona.training.minibatch.Minibatch.gradient`). ``tests/training/test_step_rule.py`` compares all of them.

One step turns the gradient `g` of a batch's mean loss into new weights `w`. With a privacy budget, `g` is the answer to
a query (:mod:`sparsona.privacy`) in the place of that gradient, and all that follows is post-processing:

0. Privacy: the gradient of each sampled example, within the mask, is scaled to norm at most `clip`; then
   ``g <- (sum of these + noise * mask) / expected batch size``. A gradient that is not finite, or beyond `LARGEST`,
   counts as zero.

1. Proximal term in the loss: ``g <- g + strength * (w - towards)``.
2. Mask: ``g <- g * mask``.
3. Clip: ``g <- g * min(1, clip / (|g| + 1e-6))``.
4. Weight decay: ``g <- g + weight_decay * w * mask``.
5. Optimiser: SGD ``b <- momentum * b + g, w <- w - rate * b``, or Adam.
6. Proximal term apart from the loss: ``w <- w - rate * strength * (w - towards) * mask``.

A weight outside the mask never moves. Parts that the settings leave out are skipped.

The optimisers compute what torch.optim computes. Sparsona has its own because a weight that a mask stops must not move
at all, whatever momentum and weight decay say, and because a method may keep an optimiser's moments over the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeAlias

import torch

from sparsona.message import Mask, Vector
from sparsona.ops.moments import EMPTY, NONE, Moments
from sparsona.privacy.mechanism import Query
from sparsona.training.config import TrainConfig
from sparsona.training.vector import tensor_of


class Optimizer(Protocol):
    """Moves weights along a gradient, in place."""

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move the weights by one gradient, in place."""

    def moments(self) -> Moments:
        """Return the moments to continue from."""


class Sgd:
    """w <- w - rate * b with b <- momentum * b + g. Without momentum a step is one in-place axpy."""

    def __init__(self, rate: float, momentum: float, like: torch.Tensor, saved: Moments) -> None:
        self._rate = rate
        self._momentum = momentum
        self._count = saved.step
        self._buffer = _vector(saved.first, like) if momentum else None

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move the weights by one gradient, in place."""
        self._count += 1
        if self._buffer is not None:
            gradient = self._buffer.mul_(self._momentum).add_(gradient)
        weights.add_(gradient, alpha=-self._rate)

    def moments(self) -> Moments:
        """Return the moments to continue from."""
        return Moments(self._count, NONE if self._buffer is None else _copy(self._buffer), NONE)


class Adam:
    """Kingma and Ba 2015 with their constants 0.9, 0.999 and 1e-8."""

    def __init__(self, rate: float, like: torch.Tensor, saved: Moments) -> None:
        self._rate = rate
        self._count = saved.step
        self._first = _vector(saved.first, like)
        self._second = _vector(saved.second, like)

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        """Move the weights by one gradient, in place."""
        self._count += 1
        self._first.lerp_(gradient, 0.1)
        self._second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        # w - rate * m / (sqrt(v) + 1e-8) with the unbiased m and v, all factors moved into the denominator
        factor = (0.9**self._count - 1) / self._rate
        root = factor / (1 - 0.999**self._count) ** 0.5
        weights.addcdiv_(self._first, self._second.sqrt().mul_(root).add_(1e-8 * factor))

    def moments(self) -> Moments:
        """Return the moments to continue from."""
        return Moments(self._count, _copy(self._first), _copy(self._second))


def make_optimizer(config: TrainConfig, rate: float, weights: torch.Tensor, saved: Moments) -> Optimizer:
    """Return the optimiser of these weights, continued from saved moments."""
    if config.optimizer == "adam":
        return Adam(rate, weights, saved)
    return Sgd(rate, config.momentum, weights, saved)


def _copy(tensor: torch.Tensor) -> Vector:
    found: Vector = tensor.cpu().numpy().copy()
    return found


def _vector(saved: Vector, like: torch.Tensor) -> torch.Tensor:
    """Return a saved vector on the device of `like`; zeros if it is empty."""
    return torch.tensor(saved, device=like.device) if len(saved) else torch.zeros_like(like)


GradientSpans: TypeAlias = Sequence[tuple[slice, torch.Tensor]]
"""Spans of the weights, always cut at the same places, and the gradient of each, which the step may write to."""


@dataclass(frozen=True)
class Proximal:
    """The term strength/2 * |w - towards|^2, added to the loss.

    With `apart` it is left out of the loss, and a gradient step on it follows every step.
    """

    towards: Vector
    strength: float
    apart: bool = False


class StepRule:
    """Moves a vector of weights in place, by the rule at the top of this module.

    `mask` is true where weights may move. `saved` are the moments to continue from. Mask and proximal term may be
    longer than the weights: the rest is not used.

    >>> import numpy as np
    >>> weights = torch.tensor([1.0, 1.0])
    >>> rule = StepRule(weights, TrainConfig(weight_decay=0.5), 0.1, mask=np.array([True, False]))
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
        mask: Mask | None = None,
        proximal: Proximal | None = None,
        saved: Moments | None = None,
    ) -> None:
        size, device = len(weights), weights.device
        self._weights = weights
        self._config = config
        self._rate = rate
        self._mask, self._factor = mask, None if mask is None else tensor_of(mask[:size], device)
        self._proximal = proximal
        # Without a proximal term it is not used: the weights stand in, so that its type has no None.
        self._towards = weights if proximal is None else tensor_of(proximal.towards[:size], device)
        self._saved = EMPTY if saved is None else saved
        self._spans: dict[tuple[int, int], StepRule] = {}

    @cached_property
    def _optimizer(self) -> Optimizer:
        """Return the optimiser, made by the first step: if only spans move, no moments of the whole vector are held."""
        return make_optimizer(self._config, self._rate, self._weights, self._saved)

    def step(self, gradient: torch.Tensor) -> None:
        """Move the weights along a loss's gradient, which is overwritten."""
        self.prepare(gradient)
        self._optimizer.step(self._weights, gradient)
        self._pull_apart()

    def prepare(self, gradient: torch.Tensor) -> None:
        """Turn a loss's gradient into the one that the optimiser gets: parts 1 to 4 of the rule."""
        self._add_pull(gradient)
        if self._config.clip is not None:
            self._apply_mask(gradient)
            clip([gradient], self._config.clip)
        self._add_decay(gradient)

    def step_spans(self, spans: GradientSpans) -> None:
        """Move only these spans of a vector. Clipping uses the common norm of all spans.

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
            rule._optimizer.step(rule._weights, gradient)
            rule._pull_apart()

    def moments(self) -> Moments:
        """Return the optimiser's moments."""
        return self._optimizer.moments()

    def _add_pull(self, gradient: torch.Tensor) -> None:
        if self._proximal is not None and not self._proximal.apart:
            gradient.add_(self._weights - self._towards, alpha=self._proximal.strength)

    def _apply_mask(self, vector: torch.Tensor) -> None:
        if self._factor is not None:
            vector.mul_(self._factor)

    def _add_decay(self, gradient: torch.Tensor) -> None:
        """Add the weight decay and mask the sum: a full mask then gives the same bits as none."""
        if self._config.weight_decay:
            gradient.add_(self._weights, alpha=self._config.weight_decay)
        self._apply_mask(gradient)

    def _pull_apart(self) -> None:
        if self._proximal is not None and self._proximal.apart:
            distance = self._weights - self._towards
            self._apply_mask(distance)
            self._weights.add_(distance, alpha=-self._rate * self._proximal.strength)

    def _span(self, span: slice) -> StepRule:
        key = span.start, span.stop
        if key not in self._spans:
            mask = None if self._mask is None else self._mask[span]
            term = self._proximal and replace(self._proximal, towards=self._proximal.towards[span])
            self._spans[key] = StepRule(self._weights[span], self._config, self._rate, mask=mask, proximal=term)
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


CHUNK = 256
"""Squares that are summed in single precision before double precision takes over."""
SURELY = 1 + 2.0**-17
"""Norms of rows are rounded upwards by this factor, which is more than single precision can lose in `CHUNK` squares."""
LARGEST = 1e32
"""The largest number whose gradient is clipped: beyond it, scales leave the normal numbers of single precision."""


def norms_of(rows: torch.Tensor) -> torch.Tensor:
    """The norm of each row in double precision, rounded upwards.

    >>> norms_of(torch.full((1, 2**20), 1e-3)).item() >= 1.024
    True
    """
    count, chunks = len(rows), rows.shape[1] // CHUNK
    first, rest = rows[:, : chunks * CHUNK].reshape(count, chunks, CHUNK), rows[:, chunks * CHUNK :]
    norms: torch.Tensor = torch.hypot(first.norm(dim=2).double().norm(dim=1), rest.norm(dim=1).double())
    return norms * SURELY


def clipping_scale(norms: torch.Tensor, most: float) -> torch.Tensor:
    """What gradients of these norms are multiplied by, in single precision: 0 for one that is not finite or too large.

    >>> clipping_scale(torch.tensor([0.5, 4.0, 1e44, torch.nan]).double(), 1.0)
    tensor([1.0000, 0.2500, 0.0000, 0.0000])
    """
    return torch.where(norms <= LARGEST, (most / norms.clamp(min=1e-12)).clamp(max=1.0), 0.0).float()


def clipped_sum(gradients: torch.Tensor, most: float, mask: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of examples' gradients, a row each, within the mask and each scaled to norm at most `most`.

    >>> clipped_sum(torch.tensor([[3.0, 4.0], [0.0, 0.5], [torch.inf, 0.0]]), 1.0)
    tensor([0.6000, 1.3000])
    """
    if mask is not None:
        gradients = gradients * mask
    scale = clipping_scale(norms_of(gradients), most)
    return scale @ torch.where((scale > 0)[:, None], gradients, 0.0)


def privatised(total: torch.Tensor, query: Query, mask: torch.Tensor | None = None) -> torch.Tensor:
    """The answer to a query, given the clipped sum of the sampled examples' gradients."""
    noise = torch.from_numpy(query.noise(len(total))).to(total.device)
    return (total + (noise if mask is None else noise * mask)) / query.expected
