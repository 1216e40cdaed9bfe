"""The workplace of one process: a module, the data, a device, and the one training loop. Clients take turns on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from sparsona.chance import Chance
from sparsona.data.dataset import Array, Dataset, Indices
from sparsona.errors import Diverged, InputError
from sparsona.layout import Layout
from sparsona.message import Mask, Vector
from sparsona.method import Model
from sparsona.training.augment import crop_and_flip
from sparsona.training.config import TrainConfig
from sparsona.training.flops import TRAINING, costs, forward_flops
from sparsona.training.objective import Objective
from sparsona.training.optimizer import NONE, Moments, Optimizer
from sparsona.training.transform import AuxiliaryStep, GradientSpans, WeightTransform
from sparsona.training.vector import Flat, view_of

EVAL_BATCH = 512
SCORE_BATCH = 128
"""Samples that a model is tested on at a time. More is slower: the activations of a small ConvNet leave the cache."""


@dataclass(frozen=True)
class Proximal:
    """The term strength/2 * |w - towards|^2 beside the loss; `apart` makes it a step of its own after every step."""

    towards: Vector
    strength: float
    apart: bool = False


@dataclass(frozen=True)
class Trained:
    """The outcome of local training; `examples` counts samples seen, `loss` is their mean loss."""

    weights: Vector
    loss: float
    examples: int
    moments: Moments
    transform: Moments | None = None


@dataclass(frozen=True)
class TrainJob:
    """One local training as it was asked for; within `seeded` torch's generator is the run's."""

    start: Vector
    config: TrainConfig
    batches: Iterator[tuple[Indices, Array | None]]
    rate: float
    mask: Mask | None
    proximal: Proximal | None
    moments: Moments | None
    transform: WeightTransform | None
    transform_rate: float
    seeded: AbstractContextManager[None]


class ModelRunner:
    """A worker's workplace: one module, the data, the device. Clients take turns on it."""

    def __init__(
        self, module: nn.Module, data: Dataset, objective: Objective, chance: Chance, device: str = "cpu"
    ) -> None:
        self.flat = Flat(module, device)
        self.objective = objective
        self.chance = chance
        self.device = device
        self._inputs = torch.from_numpy(data.inputs)
        self._targets = torch.from_numpy(data.targets)
        self._missing = data.has_missing
        self._image = data.inputs.ndim == 4
        raw = data.inputs.dtype == np.uint8
        ones = (1,) * (data.inputs.ndim - 2)
        std = torch.tensor(data.std or 1.0).reshape(-1, *ones)
        mean = torch.tensor(data.mean or 0.0).reshape(-1, *ones)
        self._scale = (1 / (std * (255.0 if raw else 1.0))).to(device)
        self._shift = (-mean / std).to(device)
        self.needs_pairs = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())
        """Whether a batch of one sample cannot be trained on: its variance is not defined."""
        self.loss = float("nan")
        """The mean loss of the last training."""
        self.flops = 0
        """The operations counted so far; whoever wants those of one turn sets it to 0 before."""
        self.samples = 0.0
        """The samples trained on so far, one for every pass of training: what a device's time grows with."""
        self._counter: ModelRunner | None = None
        """Where work is counted, if not here: a runner for other samples counts on the one that it was made from."""

    @property
    def layout(self) -> Layout:
        return self.flat.layout

    @property
    def targets(self) -> torch.Tensor:
        return self._targets

    @cached_property
    def _costs(self) -> dict[str, int]:
        return costs(self.flat.module, self.prepare(self._inputs[:1]))

    def count(self, samples: int, mask: Mask | None = None, passes: int = TRAINING) -> None:
        """Count the operations of so many samples on the weights of `mask`; a training step is three passes."""
        counter = self._counter or self
        counter.flops += samples * passes * forward_flops(self.layout, self._costs, mask)
        counter.samples += samples * passes / TRAINING

    def _count_step(self, samples: int, transform: WeightTransform) -> None:
        """Count a step of what the transform ran: a pass forward, one back to the inputs, and one to the weights."""
        ran, moved = transform.active()
        self.count(samples, ran, TRAINING - 1)
        self.count(samples, moved, 1)
        (self._counter or self).flops += samples * TRAINING * transform.operations

    def batch(self, indices: Indices, augment: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of some samples, normalised, on the device; images in channels_last memory."""
        chosen = torch.from_numpy(indices)
        inputs = self._inputs[chosen]
        if augment:
            inputs = crop_and_flip(inputs)
        return self.prepare(inputs), self._targets[chosen].to(self.device)

    def prepare(self, inputs: torch.Tensor) -> torch.Tensor:
        """Raw inputs as the model wants them: on the device, normalised, missing values marked."""
        inputs = inputs.to(self.device)
        if not (inputs.is_floating_point() or inputs.dtype == torch.uint8):
            return inputs
        inputs = torch.addcmul(self._shift, inputs.float(), self._scale)
        if self._missing:
            absent = torch.isnan(inputs)
            inputs = torch.cat([torch.where(absent, 0.0, inputs), absent.float()], 1)
        if self._image:
            inputs = channels_last(inputs)
        return inputs

    def forward(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        """The module's outputs with these weights, in evaluation mode."""
        self.flat.load(weights)
        self.flat.module.eval()
        with torch.no_grad():
            return _outputs(self.flat.module(inputs))

    def outputs(self, model: Model, inputs: torch.Tensor) -> torch.Tensor:
        """What `model` says of a batch of prepared inputs."""
        if isinstance(model, np.ndarray):
            return self.forward(model, inputs)
        with torch.no_grad():
            return model.predict(self.forward, inputs)

    def predict(self, model: Model, inputs: Array) -> Array:
        """Predictions for raw inputs, in the units of the data set."""
        parts = torch.split(torch.from_numpy(inputs), EVAL_BATCH)
        outputs = torch.cat([self.outputs(model, self.prepare(part)) for part in parts])
        predictions: Array = self.objective.predict(outputs).cpu().numpy()
        return predictions

    def score(self, model: Model, indices: Indices) -> float:
        """The metric of `model` on these samples; NaN where there are none."""
        return self.scores(model, indices)[0]

    def scores(self, model: Model, *parts: Indices) -> tuple[float, ...]:
        """The metric of `model` on each part of samples. A vector is tested on all in one pass; a predictor may look
        at its whole batch, so no batch of it mixes parts."""
        if isinstance(model, np.ndarray):
            answers = self._answers(model, np.concatenate(parts), SCORE_BATCH)
            split = np.split(answers, np.cumsum([len(part) for part in parts])[:-1])
        else:
            split = [self._answers(model, part, EVAL_BATCH) for part in parts]
        return tuple(
            self.objective.metric(found, self._targets[torch.from_numpy(part)].numpy()) if len(part) else float("nan")
            for found, part in zip(split, parts, strict=True)
        )

    def _answers(self, model: Model, indices: Indices, batch: int) -> Array:
        """The predictions of `model` for these samples."""
        if not len(indices):
            return np.zeros(0, np.float32)
        pieces = torch.split(torch.from_numpy(indices), batch)
        outputs = torch.cat([self.outputs(model, self.prepare(self._inputs[piece])) for piece in pieces])
        predictions: Array = self.objective.predict(outputs).cpu().numpy()
        return predictions

    def on(self, inputs: Array, targets: Array, objective: Objective) -> ModelRunner:
        """The same module and device with other raw samples, of the same units, and another objective. What is done
        there counts here."""
        out = ModelRunner.__new__(ModelRunner)
        out.__dict__.update(self.__dict__)
        out._inputs, out._targets, out.objective = view_of(inputs), view_of(targets), objective
        out._counter = self._counter or self
        return out

    @property
    def raw(self) -> torch.Tensor:
        """All inputs as they are stored."""
        return self._inputs

    def losses(self, model: Model, indices: Indices) -> Array:
        """The loss of `model` on each of these samples, in evaluation mode."""
        found = []
        with torch.no_grad():
            for start in range(0, len(indices), EVAL_BATCH):
                inputs, targets = self.batch(indices[start : start + EVAL_BATCH])
                found.append(self.objective.loss(self.outputs(model, inputs), targets))
        out: Array = torch.cat(found).cpu().numpy()
        return out

    def gradient(self, weights: Vector, indices: Indices) -> Vector:
        """The gradient of the mean loss over these samples, in evaluation mode; zero where buffers stand."""
        self.flat.load(weights)
        self.flat.module.eval()
        self.flat.gradient.zero_()
        for start in range(0, len(indices), EVAL_BATCH):
            inputs, targets = self.batch(indices[start : start + EVAL_BATCH])
            losses = self.objective.loss(_outputs(self.flat.module(inputs)), targets)
            torch.autograd.backward(losses.sum() / len(indices))
        self.count(len(indices))
        out = np.zeros(self.layout.size, np.float32)
        out[: self.layout.size] = self.flat.gradient.cpu().numpy()
        return out

    def perform(self, training: TrainJob) -> Trained:
        """Train as asked."""
        with training.seeded:
            return self.train(
                training.start,
                training.config,
                training.batches,
                training.rate,
                training.mask,
                training.proximal,
                training.moments,
                training.transform,
                training.transform_rate,
            )

    def train(
        self,
        start: Vector,
        config: TrainConfig,
        batches: Iterator[tuple[Indices, Array | None]],
        rate: float,
        mask: Mask | None = None,
        proximal: Proximal | None = None,
        moments: Moments | None = None,
        transform: WeightTransform | None = None,
        transform_rate: float = 0.0,
    ) -> Trained:
        """The training loop: every method's every local step is taken here."""
        flat, trainable = self.flat, self.layout.size
        flat.load(start)
        flat.module.train()
        weights, module_runs = flat.weights[:trainable], transform is None or transform.overwrites
        if transform is not None and transform.overwrites:
            weights = weights.clone()
        active = None if mask is None else self._vector(mask[:trainable].astype(np.float32))
        towards = None if proximal is None else self._vector(proximal.towards[:trainable])
        optimizer = config.stepper(rate, weights, moments) if transform is None else None
        beside = None if transform is None else AuxiliaryStep.of(transform, transform_rate)
        parts: dict[int, Optimizer] = {}
        total, seen = torch.zeros((), device=self.device), 0
        for indices, importance in batches:
            inputs, targets = self.batch(indices, config.augment)
            for _ in range(config.repeats):
                if module_runs:
                    flat.gradient.zero_()
                outputs = flat.module(inputs) if transform is None else transform.forward(flat, weights, inputs)
                losses = self.objective.loss(_outputs(outputs), targets)
                if importance is not None:
                    losses = losses * self._vector(importance)
                torch.autograd.backward(losses.mean())
                with torch.no_grad():
                    moved: GradientSpans | None = None
                    if transform is not None:
                        moved = transform.backward(flat, weights)
                        if beside is not None:
                            beside.step()
                    pieces = ((slice(0, trainable), flat.gradient),) if moved is None else moved
                    for span, slope in pieces:
                        if towards is not None and proximal is not None and not proximal.apart:
                            slope.add_(weights[span] - towards[span], alpha=proximal.strength)
                        if active is not None:
                            slope.mul_(active[span])
                    if config.clip is not None:
                        norms = [slope.norm() for _, slope in pieces]
                        norm = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
                        for _, slope in pieces:
                            slope.mul_((config.clip / (norm + 1e-6)).clamp(max=1.0))
                    for span, slope in pieces:
                        if config.weight_decay:
                            if active is None:
                                slope.add_(weights[span], alpha=config.weight_decay)
                            else:
                                slope.addcmul_(weights[span], active[span], value=config.weight_decay)
                        if moved is None:
                            optimizer = optimizer or config.stepper(rate, weights, moments)
                            optimizer.step(weights, slope)
                            continue
                        if span.start not in parts:  # a memory for every span: others are not moved, nor forgotten
                            parts[span.start] = config.stepper(rate, weights[span], None)
                        parts[span.start].step(weights[span], slope)
                    if towards is not None and proximal is not None and proximal.apart:
                        pull = weights - towards if active is None else (weights - towards) * active
                        weights.add_(pull, alpha=-rate * proximal.strength)
                    total += losses.detach().sum()
                seen += len(indices)
                if transform is not None:
                    self._count_step(len(indices), transform)
        if transform is not None and transform.overwrites:
            with torch.no_grad():
                flat.weights[:trainable] = weights
        trained = flat.read()
        if transform is None:
            self.count(seen, mask)
        self.loss = loss = float(total) / max(seen, 1)
        if not (np.isfinite(loss) and np.isfinite(trained).all()):
            raise Diverged(
                f"the loss is {loss:g} after {seen} samples at learning rate {rate:g}: lower it, or set clip"
            )
        memory = optimizer.moments() if optimizer is not None else moments or Moments(0, NONE, NONE)
        return Trained(trained, loss, seen, memory, None if beside is None else beside.optimizer.moments())

    def iterate(
        self, start: Vectors, step: Step, batches: Iterator[tuple[Indices, ...]], config: TrainConfig
    ) -> Vectors:
        """The loop for steps that are not an optimiser's: `step` says what becomes of the vectors, batch by batch."""
        vectors = start
        total, seen = torch.zeros((), device=self.device), 0
        self.flat.load(start[0])
        self.flat.module.train()
        for chosen in batches:
            drawn = tuple(Minibatch(self, indices, config) for indices in chosen)
            with np.errstate(over="ignore", invalid="ignore"):  # divergence is named below
                vectors = step(vectors, drawn)
            total += sum((batch.total for batch in drawn), torch.zeros((), device=self.device))
            seen += sum(batch.seen for batch in drawn)
        self.loss = loss = float(total) / max(seen, 1)
        if not (np.isfinite(loss) and all(np.isfinite(vector).all() for vector in vectors)):
            raise Diverged(f"the loss is {loss:g} after {seen} samples: lower the learning rates, or set clip")
        return vectors

    def _vector(self, values: Array) -> torch.Tensor:
        return view_of(np.ascontiguousarray(values, np.float32)).to(self.device)


class Minibatch:
    """The samples of one step, and derivatives of their mean loss in training mode; zero where buffers stand.

    The config's weight decay is part of the loss, and its clip bounds the gradient before that.
    """

    def __init__(self, runner: ModelRunner, indices: Indices, config: TrainConfig) -> None:
        self._runner = runner
        self._config = config
        self._inputs, self._targets = runner.batch(indices, config.augment)
        self.total = torch.zeros((), device=runner.device)
        self.seen = 0

    def gradient(self, weights: Vector) -> Vector:
        """The gradient at `weights`."""
        flat, config = self._runner.flat, self._config
        flat.load(weights)
        flat.gradient.zero_()
        torch.autograd.backward(self._loss())
        with torch.no_grad():
            if config.clip is not None:
                flat.gradient.mul_((config.clip / (flat.gradient.norm() + 1e-6)).clamp(max=1.0))
            if config.weight_decay:
                flat.gradient.add_(flat.weights[: self._runner.layout.size], alpha=config.weight_decay)
        return self._whole(flat.gradient)

    def curvature(self, weights: Vector, direction: Vector) -> Vector:
        """The product of the Hessian at `weights` with `direction`."""
        flat, layout = self._runner.flat, self._runner.layout
        flat.load(weights)
        parameters = list(flat.module.parameters())
        first = torch.autograd.grad(self._loss(), parameters, create_graph=True)
        towards = self._runner._vector(direction[: layout.size])
        slope = torch.dot(torch.cat([g.reshape(-1) for g in first]), towards)
        second = torch.autograd.grad(slope, parameters, materialize_grads=True)
        product = torch.cat([g.reshape(-1) for g in second]) + self._config.weight_decay * towards
        return self._whole(product.detach())

    def _loss(self) -> torch.Tensor:
        runner = self._runner
        losses = runner.objective.loss(_outputs(runner.flat.module(self._inputs)), self._targets)
        self.total = self.total + losses.detach().sum()
        self.seen += len(losses)
        runner.count(len(losses))
        return losses.mean()

    def _whole(self, gradient: torch.Tensor) -> Vector:
        out = np.zeros(self._runner.layout.size, np.float32)
        out[: self._runner.layout.size] = gradient.cpu().numpy()
        return out


Vectors: TypeAlias = tuple[Vector, ...]
Step: TypeAlias = Callable[[Vectors, tuple[Minibatch, ...]], Vectors]
"""One step of a method: the vectors that it moves and as many independent batches as it asked for."""


def channels_last(images: torch.Tensor) -> torch.Tensor:
    """Images in channels_last memory. One channel makes both formats look the same to torch, so strides are set.

    >>> channels_last(torch.zeros(2, 1, 4, 4)).stride()
    (16, 1, 4, 1)
    """
    if images.shape[1] == 1:
        n, _, height, width = images.shape
        return images.contiguous().as_strided((n, 1, height, width), (height * width, 1, width, 1))
    return images.contiguous(memory_format=torch.channels_last)


def _outputs(outputs: object) -> torch.Tensor:
    if not isinstance(outputs, torch.Tensor):
        raise InputError(f"the model returns a {type(outputs).__name__}: its forward must return one tensor of outputs")
    return outputs
