"""The one training loop, and the client's handle on its data, its model and its chance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from pydantic import Field
from torch import nn

from sparsona.chance import Chance
from sparsona.dataset import Array, Dataset, Indices, Share
from sparsona.errors import Diverged, InputError
from sparsona.message import Mask, Vector
from sparsona.method import ClientId, Model, Task
from sparsona.objective import Objective
from sparsona.ops.augment import crop_and_flip
from sparsona.ops.flops import TRAINING, costs, forward_flops
from sparsona.optimizer import Adam, Moments, Optimizer, Sgd
from sparsona.vector import Flat, Layout

EVAL_BATCH = 512
SCORE_BATCH = 128
"""Samples that a model is tested on at a time. More is slower: the activations of a small ConvNet leave the cache."""


@dataclass(frozen=True)
class Recipe:
    """How a client trains. `steps`, where given, replaces `epochs`; `repeats` steps are taken on every batch.

    The learning rate of round t (from 0) is ``lr * decay**t``, and a tenth of it after each share of the rounds that
    `drops` names. `clip` bounds the gradient's norm, the mask and the proximal term included, weight decay not.
    `augment` shifts training images by up to four pixels and mirrors half of them.
    """

    epochs: Annotated[int, Field(ge=1)] = 1
    steps: Annotated[int, Field(ge=1)] | None = None
    batch: Annotated[int, Field(ge=1)] = 32
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    clip: Annotated[float, Field(gt=0)] | None = None
    decay: Annotated[float, Field(gt=0)] = 1.0
    drops: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = ()
    repeats: Annotated[int, Field(ge=1)] = 1
    drop_last: bool = False
    augment: bool = False

    def rate(self, round: int, rounds: int) -> float:
        """The learning rate of one round.

        >>> Recipe(lr=0.1, drops=(0.75,)).rate(2, 4), round(Recipe(lr=0.1, drops=(0.75,)).rate(3, 4), 9)
        (0.1, 0.01)
        """
        return self.lr * self.decay**round * 0.1 ** sum(round >= drop * rounds for drop in self.drops)


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
    companion: Moments | None = None


class Companion(ABC):
    """Makes of the weights, batch by batch, those that the module runs with: a gate, a mask that is learnt, a scale.

    `own` is what it trains beside the weights, a vector and its gradient, by its own `recipe` and from `moments` on.
    """

    own: tuple[torch.Tensor, torch.Tensor] | None = None
    recipe: Recipe | None = None
    moments: Moments | None = None
    needs_pairs: bool = False
    overwrites: bool = True
    """Whether `forward` writes to the module's own weights; otherwise these are the ones that are trained."""

    @abstractmethod
    def forward(self, flat: Flat, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch."""

    @abstractmethod
    def backward(self, flat: Flat, weights: torch.Tensor) -> Sequence[slice] | None:
        """After the loss's backward pass: make ``flat.gradient`` that of `weights`, and set the own gradient.

        Returned are the spans that this step may move, always cut at the same places; None: everything moves.
        """


@dataclass(frozen=True)
class Training:
    """One local training as it was asked for; within `seeded` torch's generator is the run's."""

    start: Vector
    recipe: Recipe
    batches: Iterator[tuple[Indices, Array | None]]
    rate: float
    mask: Mask | None
    proximal: Proximal | None
    moments: Moments | None
    companion: Companion | None
    companion_rate: float
    seeded: AbstractContextManager[None]


class Bench:
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
        self.flops += samples * passes * forward_flops(self.layout, self._costs, mask)
        self.samples += samples * passes / TRAINING

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

    def on(self, inputs: Array, targets: Array, objective: Objective) -> Bench:
        """The same module and device with other raw samples, of the same units, and another objective."""
        out = Bench.__new__(Bench)
        out.__dict__.update(self.__dict__)
        out._inputs, out._targets, out.objective = torch.from_numpy(inputs), torch.from_numpy(targets), objective
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
        out[: self.layout.trainable] = self.flat.gradient.cpu().numpy()
        return out

    def perform(self, training: Training) -> Trained:
        """Train as asked."""
        with training.seeded:
            return self.train(
                training.start,
                training.recipe,
                training.batches,
                training.rate,
                training.mask,
                training.proximal,
                training.moments,
                training.companion,
                training.companion_rate,
            )

    def train(
        self,
        start: Vector,
        recipe: Recipe,
        batches: Iterator[tuple[Indices, Array | None]],
        rate: float,
        mask: Mask | None = None,
        proximal: Proximal | None = None,
        moments: Moments | None = None,
        companion: Companion | None = None,
        companion_rate: float = 0.0,
    ) -> Trained:
        """The training loop: every method's every local step is taken here."""
        flat, trainable = self.flat, self.layout.trainable
        flat.load(start)
        flat.module.train()
        weights, gradient = flat.weights[:trainable], flat.gradient
        if companion is not None and companion.overwrites:
            weights = weights.clone()
        active = None if mask is None else self._vector(mask[:trainable].astype(np.float32))
        towards = None if proximal is None else self._vector(proximal.towards[:trainable])
        optimizer = _optimizer(recipe, rate, weights, moments)
        beside = None if companion is None else _Beside.of(companion, companion_rate)
        parts: dict[int, Optimizer] = {}
        total, seen = torch.zeros((), device=self.device), 0
        for indices, importance in batches:
            inputs, targets = self.batch(indices, recipe.augment)
            for _ in range(recipe.repeats):
                gradient.zero_()
                outputs = flat.module(inputs) if companion is None else companion.forward(flat, weights, inputs)
                losses = self.objective.loss(_outputs(outputs), targets)
                if importance is not None:
                    losses = losses * self._vector(importance)
                torch.autograd.backward(losses.mean())
                with torch.no_grad():
                    spans = None
                    if companion is not None:
                        spans = companion.backward(flat, weights)
                        if beside is not None:
                            beside.step()
                    if towards is not None and proximal is not None and not proximal.apart:
                        gradient.add_(weights - towards, alpha=proximal.strength)
                    if active is not None:
                        gradient.mul_(active)
                    if recipe.clip is not None:
                        gradient.mul_((recipe.clip / (gradient.norm() + 1e-6)).clamp(max=1.0))
                    for span in (slice(None),) if spans is None else spans:
                        if recipe.weight_decay:
                            decayed = weights[span] if active is None else weights[span] * active[span]
                            gradient[span].add_(decayed, alpha=recipe.weight_decay)
                        if spans is None:
                            optimizer.step(weights, gradient)
                            continue
                        if span.start not in parts:  # a memory for every span: others are not moved, nor forgotten
                            parts[span.start] = _optimizer(recipe, rate, weights[span], None)
                        parts[span.start].step(weights[span], gradient[span])
                    if towards is not None and proximal is not None and proximal.apart:
                        pull = weights - towards if active is None else (weights - towards) * active
                        weights.add_(pull, alpha=-rate * proximal.strength)
                    total += losses.detach().sum()
                seen += len(indices)
        if companion is not None and companion.overwrites:
            with torch.no_grad():
                flat.weights[:trainable] = weights
        trained = flat.read()
        self.count(seen, mask if companion is None else None)
        self.loss = loss = float(total) / max(seen, 1)
        if not (np.isfinite(loss) and np.isfinite(trained).all()):
            raise Diverged(
                f"the loss is {loss:g} after {seen} samples at learning rate {rate:g}: lower it, or set clip"
            )
        return Trained(trained, loss, seen, optimizer.moments(), None if beside is None else beside.optimizer.moments())

    def iterate(self, start: Vectors, step: Step, batches: Iterator[tuple[Indices, ...]], recipe: Recipe) -> Vectors:
        """The loop for steps that are not an optimiser's: `step` says what becomes of the vectors, batch by batch."""
        trainable, vectors = self.layout.trainable, start
        total, seen = torch.zeros((), device=self.device), 0
        self.flat.load(start[0])
        self.flat.module.train()
        for chosen in batches:
            drawn = tuple(Minibatch(self, indices, recipe) for indices in chosen)
            with np.errstate(over="ignore", invalid="ignore"):  # divergence is named below
                vectors = step(vectors, drawn)
            if trainable < self.layout.size:
                tail = self.flat.weights[trainable:].cpu().numpy()
                vectors = tuple(np.concatenate([vector[:trainable], tail]) for vector in vectors)
            total += sum((batch.total for batch in drawn), torch.zeros((), device=self.device))
            seen += sum(batch.seen for batch in drawn)
        self.loss = loss = float(total) / max(seen, 1)
        if not (np.isfinite(loss) and all(np.isfinite(vector).all() for vector in vectors)):
            raise Diverged(f"the loss is {loss:g} after {seen} samples: lower the learning rates, or set clip")
        return vectors

    def _vector(self, values: Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(self.device)


class Minibatch:
    """The samples of one step, and derivatives of their mean loss in training mode; zero where buffers stand.

    The recipe's weight decay is part of the loss, and its clip bounds the gradient before that.
    """

    def __init__(self, bench: Bench, indices: Indices, recipe: Recipe) -> None:
        self._bench = bench
        self._recipe = recipe
        self._inputs, self._targets = bench.batch(indices, recipe.augment)
        self.total = torch.zeros((), device=bench.device)
        self.seen = 0

    def gradient(self, weights: Vector) -> Vector:
        """The gradient at `weights`."""
        flat, recipe = self._bench.flat, self._recipe
        flat.load(weights)
        flat.gradient.zero_()
        torch.autograd.backward(self._loss())
        with torch.no_grad():
            if recipe.clip is not None:
                flat.gradient.mul_((recipe.clip / (flat.gradient.norm() + 1e-6)).clamp(max=1.0))
            if recipe.weight_decay:
                flat.gradient.add_(flat.weights[: self._bench.layout.trainable], alpha=recipe.weight_decay)
        return self._whole(flat.gradient)

    def curvature(self, weights: Vector, direction: Vector) -> Vector:
        """The product of the Hessian at `weights` with `direction`."""
        flat, layout = self._bench.flat, self._bench.layout
        flat.load(weights)
        parameters = list(flat.module.parameters())
        first = torch.autograd.grad(self._loss(), parameters, create_graph=True)
        towards = self._bench._vector(direction[: layout.trainable])
        slope = torch.dot(torch.cat([g.reshape(-1) for g in first]), towards)
        second = torch.autograd.grad(slope, parameters, materialize_grads=True)
        product = torch.cat([g.reshape(-1) for g in second]) + self._recipe.weight_decay * towards
        return self._whole(product.detach())

    def _loss(self) -> torch.Tensor:
        bench = self._bench
        losses = bench.objective.loss(_outputs(bench.flat.module(self._inputs)), self._targets)
        self.total = self.total + losses.detach().sum()
        self.seen += len(losses)
        bench.count(len(losses))
        return losses.mean()

    def _whole(self, gradient: torch.Tensor) -> Vector:
        out = np.zeros(self._bench.layout.size, np.float32)
        out[: self._bench.layout.trainable] = gradient.cpu().numpy()
        return out


Vectors: TypeAlias = tuple[Vector, ...]
Step: TypeAlias = Callable[[Vectors, tuple[Minibatch, ...]], Vectors]
"""One step of a method: the vectors that it moves and as many independent batches as it asked for."""


def _optimizer(recipe: Recipe, rate: float, weights: torch.Tensor, moments: Moments | None) -> Optimizer:
    if recipe.optimizer == "adam":
        return Adam(rate, weights, moments)
    return Sgd(rate, recipe.momentum, weights, moments)


@dataclass(frozen=True)
class _Beside:
    """The companion's own numbers and how they step."""

    weights: torch.Tensor
    gradient: torch.Tensor
    recipe: Recipe
    optimizer: Optimizer

    @classmethod
    def of(cls, companion: Companion, rate: float) -> _Beside | None:
        if companion.own is None or companion.recipe is None:
            return None
        weights, gradient = companion.own
        recipe = companion.recipe
        return cls(weights, gradient, recipe, _optimizer(recipe, rate, weights, companion.moments))

    def step(self) -> None:
        if self.recipe.clip is not None:
            self.gradient.mul_((self.recipe.clip / (self.gradient.norm() + 1e-6)).clamp(max=1.0))
        if self.recipe.weight_decay:
            self.gradient.add_(self.weights, alpha=self.recipe.weight_decay)
        self.optimizer.step(self.weights, self.gradient)


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


@dataclass(frozen=True)
class Local:
    """What a client has: its samples, the training loop, its chance. It never shows another client's data."""

    client: ClientId
    round: int
    task: Task
    recipe: Recipe
    share: Share
    bench: Bench

    @property
    def layout(self) -> Layout:
        return self.task.layout

    @property
    def examples(self) -> int:
        """The number of local training examples."""
        return len(self.share.train)

    def inputs(self, most: int = EVAL_BATCH) -> torch.Tensor:
        """The first training examples' inputs, at most so many, as the model wants them."""
        return self.bench.batch(self.share.train[:most])[0]

    def targets(self) -> Array:
        """The training examples' targets."""
        found: Array = self.bench.targets[torch.from_numpy(self.share.train)].numpy()
        return found

    def on(self, inputs: Array, targets: Array, objective: Objective) -> Local:
        """The client at work on other samples than its own, such as public ones."""
        none = np.zeros(0, np.int64)
        share = Share(self.client, np.arange(len(inputs)), none, none)
        return replace(self, share=share, bench=self.bench.on(inputs, targets, objective))

    def rng(self, purpose: str, layer: int = 0) -> np.random.Generator:
        return self.bench.chance.rng(purpose, round=self.round, client=self.client, layer=layer)

    def train(
        self,
        start: Vector,
        recipe: Recipe | None = None,
        *,
        mask: Mask | None = None,
        proximal: Proximal | None = None,
        importance: Array | None = None,
        moments: Moments | None = None,
        companion: Companion | None = None,
        stream: str = "train",
    ) -> Trained:
        """Train from `start`, by the experiment's recipe unless another is given.

        `mask` stops the other weights, `proximal` pulls towards a vector, `importance` weighs the training examples,
        `moments` continues an earlier optimiser, `companion` makes each batch's weights of the trained
        ones. Two trainings in one turn take different `stream` names.
        """
        recipe = recipe or self.recipe
        rate = recipe.rate(self.round, self.task.rounds)
        beside = companion.recipe.rate(self.round, self.task.rounds) if companion and companion.recipe else 0.0
        pairs = self.bench.needs_pairs or (companion is not None and companion.needs_pairs)
        batches = self._batches(recipe, importance, stream, pairs)
        seeded = self.bench.chance.torch(stream, round=self.round, client=self.client, device=self.bench.device)
        try:
            return self.bench.perform(
                Training(start, recipe, batches, rate, mask, proximal, moments, companion, beside, seeded)
            )
        except Diverged as error:
            raise Diverged(f"client {self.client}, round {self.round + 1}: {error}") from None

    def iterate(
        self, start: Vectors, step: Step, recipe: Recipe | None = None, *, batches: int = 1, stream: str = "train"
    ) -> Vectors:
        """Move vectors by steps of the method's own, as many as the recipe has batches; each gets `batches` batches.

        They are drawn apart. For what :meth:`train` cannot say: gradients at other points than the one that moves.
        """
        recipe = recipe or self.recipe
        if recipe.optimizer != "sgd" or recipe.momentum:
            raise InputError("this method takes plain gradient steps: set optimizer=sgd and momentum=0")
        names = [stream if i == 0 else f"{stream}/{i}" for i in range(batches)]
        drawn = [(indices for indices, _ in self._batches(recipe, None, name)) for name in names]
        try:
            with self.bench.chance.torch(stream, round=self.round, client=self.client, device=self.bench.device):
                return self.bench.iterate(start, step, zip(*drawn, strict=True), recipe)
        except Diverged as error:
            raise Diverged(f"client {self.client}, round {self.round + 1}: {error}") from None

    @property
    def rate(self) -> float:
        """The recipe's learning rate in this round."""
        return self.recipe.rate(self.round, self.task.rounds)

    def gradient(self, weights: Vector, batch: int | None = None) -> Vector:
        """The gradient over all training examples, or over one random batch of that size."""
        chosen = self.share.train
        if batch is not None and batch < len(chosen):
            chosen = self.rng("gradient").choice(chosen, batch, replace=False)
        return self.bench.gradient(weights, chosen)

    def losses(self, model: Model) -> Array:
        """The loss of `model` on each training example, in evaluation mode."""
        self.bench.count(self.examples, passes=1)
        return self.bench.losses(model, self.share.train)

    def score(self, model: Model) -> float:
        """The metric of `model` on the client's training examples."""
        self.bench.count(self.examples, passes=1)
        return self.bench.score(model, self.share.train)

    def _batches(
        self, recipe: Recipe, importance: Array | None, stream: str, pairs: bool | None = None
    ) -> Iterator[tuple[Indices, Array | None]]:
        rng, n = self.rng(f"batches/{stream}"), self.examples
        per_epoch = n // recipe.batch if recipe.drop_last and n >= recipe.batch else -(-n // recipe.batch)
        left = recipe.steps if recipe.steps is not None else recipe.epochs * per_epoch
        while left > 0:
            order = rng.permutation(n)
            for i in range(min(per_epoch, left)):
                chosen = order[i * recipe.batch : (i + 1) * recipe.batch]
                if len(chosen) == 1 and (self.bench.needs_pairs if pairs is None else pairs):
                    continue
                yield self.share.train[chosen], None if importance is None else importance[chosen]
            left -= per_epoch
