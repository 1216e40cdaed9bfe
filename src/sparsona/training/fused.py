"""The fused trainer: a whole training of a tiny net as one call of compiled code.

A tiny net spends its time on calls, layer by layer and step by step, not on arithmetic. The kernels take all steps of
a training at once. They sum in another order than torch, so results differ from the plain trainer's in the last bits.
They do not depend on the engine or on the number of workers: every client is trained by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from sparsona.data.dataset import Array, Indices
from sparsona.message import Vector
from sparsona.training import kernels
from sparsona.training.chain import LinearLayer, chain_of
from sparsona.training.job import Trained, TrainJob
from sparsona.training.loop import rule_of
from sparsona.training.objective import Objective, classification
from sparsona.training.optimizer import EMPTY, Moments

log = logging.getLogger(__name__)
MOST = 2**18
"""Weights. Larger nets spend their time on arithmetic, which torch's products are better at."""


def unfit(module: nn.Module, inputs: np.dtype[Any]) -> str:
    """Why the fused trainer does not take this model with inputs of this type; empty where it does.

    >>> unfit(nn.Sequential(nn.Linear(4, 2)), np.dtype("float32"))
    ''
    >>> unfit(nn.Sequential(nn.Linear(4, 2)), np.dtype("int64"))
    'its inputs are int64, not numbers or pixels'
    """
    chain = chain_of(module)
    if isinstance(chain, str):
        return chain
    size = sum(parameter.numel() for parameter in module.parameters())
    if size > MOST:
        return f"it has {size} weights, and from {MOST} on torch is faster"
    return "" if inputs in (np.float32, np.uint8) else f"its inputs are {inputs}, not numbers or pixels"


TrainerName: TypeAlias = Literal["plain", "fused"]
"""How local trainings are run: layer by layer in torch, or tiny nets as one call of compiled code."""


def choose_trainer(asked: TrainerName | Literal["auto"], module: nn.Module, inputs: Array, device: str) -> TrainerName:
    """The fused trainer where it takes the model, unless the plain one is asked for.

    The rule looks at the model, the type of the inputs and the device, never at the speed of a machine: the results of
    an experiment depend on the trainer.
    """
    if asked == "plain":
        return "plain"
    reason = unfit(module, inputs.dtype) if device == "cpu" else "it is for the CPU"
    if reason and asked == "fused":
        log.warning("the fused trainer does not take this model (%s): the plain one trains it", reason)
    return "plain" if reason else "fused"


PIECE = 512
"""The most samples that are looked at together."""


@dataclass(frozen=True)
class RawSamples:
    """Raw samples, a row each, and what makes a model's inputs of them."""

    raw: Array
    targets: Array
    scale: Vector
    shift: Vector
    missing: bool

    @property
    def width(self) -> int:
        """The numbers of one input."""
        return len(self.scale) * (2 if self.missing else 1)


class FusedTrainer:
    """Trains and runs a chain of linear layers on raw samples."""

    def __init__(self, chain: Sequence[LinearLayer], samples: RawSamples, objective: Objective) -> None:
        rows = [(one.weight, one.bias, one.outputs, one.inputs, one.activation) for one in chain]
        self._layers = np.array(rows, np.int64)
        self._classes = chain[-1].outputs
        self._samples = samples
        self._objective = objective
        targets, labels = samples.targets, objective.loss is classification().loss
        self._labels = labels and targets.dtype == np.int64 and bool(((targets >= 0) & (targets < self._classes)).all())
        self._width = samples.width + sum(one.outputs for one in chain)
        self._values = self._errors = np.zeros((0, self._width), np.float32)

    def train(self, job: TrainJob) -> Trained:
        """Train as the job says. It draws no random numbers but those of its batches."""
        weights = np.array(job.start, np.float32)
        batches = list(job.batches)
        rule = None
        if job.mask is not None and job.mask.all():
            job = replace(job, mask=None)  # a full mask then gives the same bits as none
        if not (self._labels and job.is_descent):
            rule = rule_of(job, torch.from_numpy(weights))
        if not batches:
            return Trained(weights, 0.0, 0, EMPTY if job.moments is None else job.moments)
        chosen = np.concatenate([indices for indices, _ in batches])
        counts = [len(indices) for indices, _ in batches]
        bounds = np.array([0, *accumulate(counts)])
        share = _shares(counts, [importance for _, importance in batches])
        values, errors = self._room(max(counts))
        config, samples = job.config, self._samples
        seen = config.repeats * len(chosen)
        if rule is None:
            total = kernels.descend(
                weights, self._layers, samples.raw, samples.scale, samples.shift, samples.missing, samples.targets,
                chosen, bounds, share, config.repeats, np.float32(job.rate),
                np.float32(1 - job.rate * config.weight_decay), values, errors,
            )  # fmt: skip
            before = 0 if job.moments is None else job.moments.step
            moments = Moments(before + config.repeats * len(batches), EMPTY.first, EMPTY.second)
            return Trained(weights, total / seen, seen, moments)
        total = 0.0
        gradient = torch.zeros(len(weights))
        for number in range(len(batches)):
            place = slice(bounds[number], bounds[number + 1])
            kernels.gather(samples.raw, samples.scale, samples.shift, samples.missing, chosen[place], values)
            for _ in range(config.repeats):
                gradient.zero_()
                total += self._add_gradient(weights, chosen[place], share[place], gradient.numpy())
                with torch.no_grad():
                    rule.step(gradient)
        return Trained(weights, total / seen, seen, rule.moments())

    def _add_gradient(self, weights: Vector, chosen: Indices, share: Vector, out: Vector) -> float:
        """Add the gradient of the gathered samples' loss; return the sum of their losses."""
        values, errors = self._values, self._errors
        start = kernels.forward(weights, self._layers, values, len(chosen))
        if self._labels:
            labels = self._samples.targets[chosen]
            total = kernels.cross_entropy(values, errors, start, self._classes, labels, share)
        else:
            place = slice(start, start + self._classes)
            outputs = torch.tensor(values[: len(chosen), place], requires_grad=True)
            losses = self._objective.loss(outputs, torch.from_numpy(self._samples.targets[chosen]))
            (slope,) = torch.autograd.grad(losses, outputs, torch.from_numpy(share))
            errors[: len(chosen), place] = slope.numpy()
            total = float(losses.detach() @ torch.from_numpy(share)) * len(chosen)
        one = np.float32(1)
        kernels.backward(weights, out, self._layers, values, errors, start, len(chosen), one, one)
        return float(total)

    def gradient(self, weights: Vector, chosen: Indices) -> Vector:
        """The gradient of the mean loss over some samples."""
        out = np.zeros(len(weights), np.float32)
        samples, share = self._samples, np.full(len(chosen), 1 / max(len(chosen), 1), np.float32)
        for start in range(0, len(chosen), PIECE):
            place = slice(start, start + PIECE)
            values, _ = self._room(len(chosen[place]))
            kernels.gather(samples.raw, samples.scale, samples.shift, samples.missing, chosen[place], values)
            self._add_gradient(weights, chosen[place], share[place], out)
        return out

    def outputs(self, weights: Vector, chosen: Indices) -> torch.Tensor:
        """The model's outputs for some samples."""
        samples = self._samples
        values, _ = self._room(len(chosen))
        kernels.gather(samples.raw, samples.scale, samples.shift, samples.missing, chosen, values)
        start = kernels.forward(weights, self._layers, values, len(chosen))
        return torch.from_numpy(values[: len(chosen), start:].copy())

    def _room(self, count: int) -> tuple[Vector, Vector]:
        """Memory for so many samples."""
        if len(self._values) < count:
            self._values, self._errors = (np.zeros((count, self._width), np.float32) for _ in range(2))
        return self._values, self._errors


def _shares(counts: Sequence[int], importance: Sequence[Array | None]) -> Vector:
    """The weight of each sample in the mean over its batch."""
    share = np.repeat(np.float32(1) / np.array(counts, np.float32), counts)
    given = [one for one in importance if one is not None]
    return share * np.concatenate(given, dtype=np.float32) if given else share
