"""The one training loop, and the client's handle on its data, its model and its chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

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
from sparsona.optimizer import Adam, Moments, Optimizer, Sgd
from sparsona.vector import Flat, Layout

EVAL_BATCH = 512


@dataclass(frozen=True)
class Recipe:
    """How a client trains. `steps`, where given, replaces `epochs`; `repeats` steps are taken on every batch.

    The learning rate of round t (from 0) is ``lr * decay**t``, and a tenth of it after each share of the rounds that
    `drops` names. `clip` bounds the gradient's norm, the mask and the proximal term included, weight decay not.
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

    def rate(self, round: int, rounds: int) -> float:
        """The learning rate of one round.

        >>> Recipe(lr=0.1, drops=(0.75,)).rate(2, 4), round(Recipe(lr=0.1, drops=(0.75,)).rate(3, 4), 9)
        (0.1, 0.01)
        """
        return self.lr * self.decay**round * 0.1 ** sum(round >= drop * rounds for drop in self.drops)


@dataclass(frozen=True)
class Proximal:
    """The term strength/2 * |w - towards|^2 beside the loss."""

    towards: Vector
    strength: float


@dataclass(frozen=True)
class Trained:
    """The outcome of local training; `examples` counts samples seen, `loss` is their mean loss."""

    weights: Vector
    loss: float
    examples: int
    moments: Moments


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

    @property
    def layout(self) -> Layout:
        return self.flat.layout

    def batch(self, indices: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of some samples, normalised, on the device; images in channels_last memory."""
        chosen = torch.from_numpy(indices)
        return self.prepare(self._inputs[chosen]), self._targets[chosen].to(self.device)

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
        if not len(indices):
            return float("nan")
        pieces = torch.split(torch.from_numpy(indices), EVAL_BATCH)
        outputs = torch.cat([self.outputs(model, self.prepare(self._inputs[piece])) for piece in pieces])
        predictions = self.objective.predict(outputs).cpu().numpy()
        return self.objective.metric(predictions, self._targets[torch.from_numpy(indices)].numpy())

    def gradient(self, weights: Vector, indices: Indices) -> Vector:
        """The gradient of the mean loss over these samples, in evaluation mode; zero where buffers stand."""
        self.flat.load(weights)
        self.flat.module.eval()
        self.flat.gradient.zero_()
        for start in range(0, len(indices), EVAL_BATCH):
            inputs, targets = self.batch(indices[start : start + EVAL_BATCH])
            losses = self.objective.loss(_outputs(self.flat.module(inputs)), targets)
            torch.autograd.backward(losses.sum() / len(indices))
        out = np.zeros(self.layout.size, np.float32)
        out[: self.layout.trainable] = self.flat.gradient.cpu().numpy()
        return out

    def train(
        self,
        start: Vector,
        recipe: Recipe,
        batches: Iterator[tuple[Indices, Array | None]],
        rate: float,
        mask: Mask | None = None,
        proximal: Proximal | None = None,
        moments: Moments | None = None,
    ) -> Trained:
        """The training loop: every method's every local step is taken here."""
        flat, trainable = self.flat, self.layout.trainable
        flat.load(start)
        flat.module.train()
        weights, gradient = flat.weights[:trainable], flat.gradient
        active = None if mask is None else self._vector(mask[:trainable].astype(np.float32))
        towards = None if proximal is None else self._vector(proximal.towards[:trainable])
        optimizer: Optimizer = (
            Adam(rate, weights, moments) if recipe.optimizer == "adam" else Sgd(rate, recipe.momentum, weights, moments)
        )
        total, seen = torch.zeros((), device=self.device), 0
        for indices, importance in batches:
            inputs, targets = self.batch(indices)
            for _ in range(recipe.repeats):
                gradient.zero_()
                losses = self.objective.loss(_outputs(flat.module(inputs)), targets)
                if importance is not None:
                    losses = losses * self._vector(importance)
                torch.autograd.backward(losses.mean())
                with torch.no_grad():
                    if towards is not None and proximal is not None:
                        gradient.add_(weights - towards, alpha=proximal.strength)
                    if active is not None:
                        gradient.mul_(active)
                    if recipe.clip is not None:
                        gradient.mul_((recipe.clip / (gradient.norm() + 1e-6)).clamp(max=1.0))
                    if recipe.weight_decay:
                        gradient.add_(weights if active is None else weights * active, alpha=recipe.weight_decay)
                    optimizer.step(weights, gradient)
                    total += losses.detach().sum()
                seen += len(indices)
        trained = flat.read()
        self.loss = loss = float(total) / max(seen, 1)
        if not (np.isfinite(loss) and np.isfinite(trained).all()):
            raise Diverged(
                f"the loss is {loss:g} after {seen} samples at learning rate {rate:g}: lower it, or set clip"
            )
        return Trained(trained, loss, seen, optimizer.moments())

    def _vector(self, values: Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(self.device)


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
        stream: str = "train",
    ) -> Trained:
        """Train from `start`, by the experiment's recipe unless another is given.

        `mask` stops the other weights, `proximal` pulls towards a vector, `importance` weighs the training examples,
        `moments` continues an earlier optimiser. Two trainings in one turn take different `stream` names.
        """
        recipe = recipe or self.recipe
        rate = recipe.rate(self.round, self.task.rounds)
        batches = self._batches(recipe, importance, stream)
        try:
            with self.bench.chance.torch(stream, round=self.round, client=self.client, device=self.bench.device):
                return self.bench.train(start, recipe, batches, rate, mask, proximal, moments)
        except Diverged as error:
            raise Diverged(f"client {self.client}, round {self.round + 1}: {error}") from None

    def gradient(self, weights: Vector, batch: int | None = None) -> Vector:
        """The gradient over all training examples, or over one random batch of that size."""
        chosen = self.share.train
        if batch is not None and batch < len(chosen):
            chosen = self.rng("gradient").choice(chosen, batch, replace=False)
        return self.bench.gradient(weights, chosen)

    def score(self, model: Model) -> float:
        """The metric of `model` on the client's training examples."""
        return self.bench.score(model, self.share.train)

    def _batches(self, recipe: Recipe, importance: Array | None, stream: str) -> Iterator[tuple[Indices, Array | None]]:
        rng, n = self.rng(f"batches/{stream}"), self.examples
        per_epoch = n // recipe.batch if recipe.drop_last and n >= recipe.batch else -(-n // recipe.batch)
        left = recipe.steps if recipe.steps is not None else recipe.epochs * per_epoch
        while left > 0:
            order = rng.permutation(n)
            for i in range(min(per_epoch, left)):
                chosen = order[i * recipe.batch : (i + 1) * recipe.batch]
                if len(chosen) == 1 and self.bench.needs_pairs:
                    continue
                yield self.share.train[chosen], None if importance is None else importance[chosen]
            left -= per_epoch
