"""The fused trainer: a whole training of a tiny net as one call of compiled code.

A tiny net spends its time on calls, layer by layer and step by step, not on arithmetic. The kernels take all steps of
a training at once. They sum in another order than torch, so results differ from the plain trainer's in the last bits.
They do not depend on the engine or on the number of workers: every client is trained by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from sparsona.compiled import KERNEL
from sparsona.data.dataset import Array, Indices
from sparsona.message import Mask, Vector
from sparsona.ops.moments import EMPTY, Moments
from sparsona.training import kernels
from sparsona.training.chain import LinearLayer, linear_chain
from sparsona.training.job import Trained, TrainJob, rule_of
from sparsona.training.objective import Objective, classification

log = logging.getLogger(__name__)
MOST = 2**18
"""Weights. Larger nets spend their time on arithmetic, which torch's products are better at."""


def unfit(module: nn.Module, inputs: np.dtype[Any]) -> str:
    """Return why the fused trainer does not take this model with inputs of this type; empty if it does.

    >>> unfit(nn.Sequential(nn.Linear(4, 2)), np.dtype("float32"))
    ''
    >>> unfit(nn.Sequential(nn.Linear(4, 2)), np.dtype("int64"))
    'its inputs are int64, not numbers or pixels'
    """
    chain = linear_chain(module)
    if isinstance(chain, str):
        return chain
    size = sum(parameter.numel() for parameter in module.parameters())
    if size > MOST:
        return f"it has {size} weights, and from {MOST} on torch is faster"
    return "" if inputs in (np.float32, np.uint8) else f"its inputs are {inputs}, not numbers or pixels"


TrainerName: TypeAlias = Literal["plain", "fused"]
"""How local trainings are run: layer by layer in torch, or tiny nets as one call of compiled code."""


def choose_trainer(asked: TrainerName | Literal["auto"], module: nn.Module, inputs: Array, device: str) -> TrainerName:
    """Choose the fused trainer if it takes the model, unless the plain one is requested.

    The rule looks at the model, the type of the inputs and the device, never at the speed of a machine: the results of
    an experiment depend on the trainer.
    """
    if asked == "plain":
        return "plain"
    reason = unfit(module, inputs.dtype) if device == "cpu" else "it is for the CPU"
    if reason and asked == "fused":
        log.warning("the fused trainer does not take this model (%s): the plain one trains it", reason)
    return "plain" if reason else "fused"


EVERYWHERE: Mask = np.zeros(0, np.bool_)
"""No mask: all weights move."""

PIECE = 512
"""The most samples that are looked at together."""


@dataclass(frozen=True)
class RawSamples:
    """Raw samples, one per row, and the preparation that turns them into a model's inputs."""

    raw: Array
    targets: Array
    scale: Vector
    shift: Vector
    missing: bool

    @property
    def width(self) -> int:
        """Return the length of one input."""
        return len(self.scale) * (2 if self.missing else 1)


@dataclass(frozen=True)
class Batches:
    """The batches of a training, one after the other: batch i has chosen[bounds[i]:bounds[i + 1]].

    `share` is the weight of each sample in the mean over its batch, `longest` the size of the largest batch.
    """

    chosen: Indices
    bounds: Indices
    share: Vector
    longest: int

    @classmethod
    def of(cls, drawn: Sequence[tuple[Indices, Array | None]]) -> Batches:
        """Batches as they were drawn: the places of their samples and, where samples are weighted, their weights."""
        counts = [len(indices) for indices, _ in drawn]
        share = np.repeat(np.float32(1) / np.array(counts, np.float32), counts)
        weights = [weights for _, weights in drawn if weights is not None]
        if weights:
            share *= np.concatenate(weights, dtype=np.float32)
        chosen = np.concatenate([indices for indices, _ in drawn])
        return cls(chosen, np.array([0, *accumulate(counts)]), share, max(counts))


class FusedTrainer:
    """Trains and runs a chain of linear layers on raw samples."""

    def __init__(self, chain: Sequence[LinearLayer], samples: RawSamples, objective: Objective) -> None:
        rows = [(one.weight, one.bias, one.outputs, one.inputs, one.activation) for one in chain]
        self._layers = np.array(rows, np.int64)
        self._classes = chain[-1].outputs
        self._prior = np.zeros(self._classes, np.float32)
        self._class_weights: Vector | None = None
        self._samples = samples
        self._objective = objective
        self._classifies = objective.loss is classification().loss and samples.targets.dtype == np.int64
        self._width = samples.width + sum(one.outputs for one in chain)
        self._values = self._errors = np.zeros((0, self._width), np.float32)

    def set_client(self, prior: Vector | None, class_weights: Vector | None) -> None:
        """Add `prior` to the outputs wherever the loss is taken, and weigh each example by its class; None: nothing."""
        self._prior = np.zeros(self._classes, np.float32) if prior is None else np.require(prior, np.float32, KERNEL)
        self._class_weights = class_weights

    def train(self, job: TrainJob) -> Trained:
        """Train as the job says. It draws no random numbers but those of its batches."""
        weights, drawn = np.array(job.start, np.float32), list(job.batches)
        if job.mask is not None and job.mask.all():
            job = replace(job, mask=None)  # a full mask then gives the same bits as none
        if not drawn:
            return Trained(weights, float("nan"), 0, EMPTY if job.moments is None else job.moments)
        batches = Batches.of(drawn)
        if self._class_weights is not None:
            by_class = self._class_weights[self._samples.targets[batches.chosen]]
            batches = replace(batches, share=batches.share * by_class)
        classes = self._are_classes(self._samples.targets[batches.chosen])
        steps = self._descend if classes and job.is_descent else self._step_by_step
        total, moments = steps(weights, job, batches)
        seen = job.config.repeats * len(batches.chosen)
        return Trained(weights, total / seen, seen, moments)

    def _descend(self, weights: Vector, job: TrainJob, batches: Batches) -> tuple[float, Moments]:
        """Take all steps at once; return the sum of the losses, and the moments."""
        samples, config = self._samples, job.config
        rate, keep = np.float32(job.rate), np.float32(1 - job.rate * config.weight_decay)
        mask = EVERYWHERE if job.mask is None else job.mask
        values, errors = self._room(batches.longest)
        total = kernels.descend(
            weights, self._layers, samples.raw, samples.scale, samples.shift, samples.missing, samples.targets,
            batches.chosen, batches.bounds, batches.share, config.repeats, rate, keep,
            np.require(job.start, np.float32, KERNEL), np.require(mask, np.bool_, KERNEL), self._prior,
            values, errors,
        )  # fmt: skip
        before = 0 if job.moments is None else job.moments.step
        return total, Moments(before + config.repeats * (len(batches.bounds) - 1), EMPTY.first, EMPTY.second)

    def _step_by_step(self, weights: Vector, job: TrainJob, batches: Batches) -> tuple[float, Moments]:
        """The same by the step rule."""
        rule, gradient, total = rule_of(job, torch.from_numpy(weights)), torch.zeros(len(weights)), 0.0
        for start, stop in pairwise(batches.bounds.tolist()):
            chosen, share = batches.chosen[start:stop], batches.share[start:stop]
            self._gather(chosen)
            for _ in range(job.config.repeats):
                gradient.zero_()
                total += self._add_gradient(weights, chosen, share, gradient.numpy())
                with torch.no_grad():
                    rule.step(gradient)
        return total, rule.moments()

    def clipped_sum(self, weights: Vector, chosen: Indices, most: float, mask: Mask | None) -> Vector:
        """The sum of the samples' gradients within the mask, each scaled to norm at most `most`.

        Their norms follow from inputs and errors of the layers (ghost clipping): no gradient of a sample is stored.
        """
        out = np.zeros(len(weights), np.float32)
        within = EVERYWHERE if mask is None else np.require(mask, np.bool_, KERNEL)
        for first in range(0, len(chosen), PIECE):
            piece = chosen[first : first + PIECE]
            values, errors = self._gather(piece)
            start, _ = self._slopes(weights, piece, np.ones(len(piece), np.float32))
            kernels.add_clipped(weights, out, self._layers, values, errors, start, len(piece), np.float32(most), within)
        return out if mask is None else out * mask

    def _add_gradient(self, weights: Vector, chosen: Indices, share: Vector, out: Vector) -> float:
        """Add the gradient of the gathered samples' loss; return the sum of their losses."""
        start, total = self._slopes(weights, chosen, share)
        one = np.float32(1)
        kernels.backward(weights, out, self._layers, self._values, self._errors, start, len(chosen), one, one)
        return total

    def _slopes(self, weights: Vector, chosen: Indices, share: Vector) -> tuple[int, float]:
        """Write the derivatives of the losses by the outputs; return where the outputs begin, and the sum of the
        losses.
        """
        values, errors = self._values, self._errors
        start = kernels.forward(weights, self._layers, values, len(chosen))
        labels = self._samples.targets[chosen]
        if self._are_classes(labels):
            total = kernels.cross_entropy(values, errors, start, self._prior, labels, share)
        else:
            place = slice(start, start + self._classes)
            outputs = torch.tensor(values[: len(chosen), place], requires_grad=True)
            losses = self._objective.loss(outputs, torch.from_numpy(labels))
            (slope,) = torch.autograd.grad(losses, outputs, torch.from_numpy(share))
            errors[: len(chosen), place] = slope.numpy()
            total = float(losses.detach() @ torch.from_numpy(share)) * len(chosen)
        return start, float(total)

    def gradient(self, weights: Vector, chosen: Indices) -> tuple[Vector, float]:
        """The gradient of the mean loss over some samples, and that loss."""
        out, loss = np.zeros(len(weights), np.float32), 0.0
        share = np.full(len(chosen), 1 / max(len(chosen), 1), np.float32)
        if self._class_weights is not None:
            share *= self._class_weights[self._samples.targets[chosen]]
        for start in range(0, len(chosen), PIECE):
            place = slice(start, start + PIECE)
            self._gather(chosen[place])
            loss += self._add_gradient(weights, chosen[place], share[place], out) / len(chosen[place])
        return out, loss

    def outputs(self, weights: Vector, chosen: Indices) -> torch.Tensor:
        """The model's outputs for some samples."""
        values, _ = self._gather(chosen)
        start = kernels.forward(weights, self._layers, values, len(chosen))
        return torch.from_numpy(values[: len(chosen), start:].copy())

    def _are_classes(self, labels: Array) -> bool:
        """Return whether the loss of these samples is the cross-entropy of one class each. Torch leaves out other
        labels.
        """
        return self._classifies and bool(((labels >= 0) & (labels < self._classes)).all())

    def _room(self, count: int) -> tuple[Vector, Vector]:
        """Return memory for at least `count` samples."""
        if len(self._values) < count:
            self._values, self._errors = (np.zeros((count, self._width), np.float32) for _ in range(2))
        return self._values, self._errors

    def _gather(self, chosen: Indices) -> tuple[Vector, Vector]:
        """Write the inputs of some samples into the room for values; return it, and that for errors."""
        samples, (values, errors) = self._samples, self._room(len(chosen))
        kernels.gather(samples.raw, samples.scale, samples.shift, samples.missing, chosen, values)
        return values, errors
