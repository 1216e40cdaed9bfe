"""The model runner: a module, the data, a device, and the one training loop. The clients of a process share it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from sparsona.base import still_layers
from sparsona.chance import Chance
from sparsona.data.dataset import Array, Dataset, Indices
from sparsona.data.varied import crop_and_flip
from sparsona.errors import Diverged, InputError, one_line
from sparsona.layout import Layout, base_of, parameters_of
from sparsona.message import Mask, Vector
from sparsona.method import Model
from sparsona.privacy.mechanism import Query
from sparsona.training import ghost
from sparsona.training.chain import linear_chain
from sparsona.training.config import TrainConfig
from sparsona.training.flops import TRAINING, costs, forward_flops
from sparsona.training.fused import FusedTrainer, RawSamples, TrainerName
from sparsona.training.job import Trained, TrainJob, TrainSteps, WeightTransform, rule_of
from sparsona.training.minibatch import Minibatch, NextQuery, Step, Vectors, checked_outputs
from sparsona.training.objective import Objective
from sparsona.training.step import clipped_sum, privatised
from sparsona.training.vector import FlatModule, LastInput, tensor_of, view_of

EVAL_BATCH = 512
MOST_GRADIENTS = 2**24
"""Numbers in the examples' gradients that are held at a time."""
SCORE_BATCH = 128
"""The batch of a test. More samples are slower: the activations of a small ConvNet leave the cache."""


class ModelRunner:
    """Trains and tests one module on a device, for one client after the other."""

    def __init__(
        self,
        module: nn.Module,
        data: Dataset,
        objective: Objective,
        chance: Chance,
        device: str = "cpu",
        trainer: TrainerName = "plain",
    ) -> None:
        self.flat = FlatModule(module, device)
        self.objective = objective
        self.chance = chance
        self.device = device
        self._inputs = view_of(data.inputs)
        self._targets = torch.from_numpy(data.targets)
        self._learnt = torch.from_numpy(objective.learnt(data.targets))
        self._missing = data.has_missing
        self._image = data.inputs.ndim == 4
        self._packed = bool(data.fields)
        self._redrawn = data.redrawn
        raw = data.inputs.dtype == np.uint8
        ones = (1,) * (data.inputs.ndim - 2)
        std = torch.tensor(data.std or 1.0).reshape(-1, *ones)
        mean = torch.tensor(data.mean or 0.0).reshape(-1, *ones)
        self._scale = (1 / (std * (255.0 if raw else 1.0))).to(device)
        self._shift = (-mean / std).to(device)
        still = set(still_layers(module))
        self.needs_pairs = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in set(module.modules()) - still)
        """Whether a batch of one sample cannot be trained on: its variance is not defined."""
        self.loss = float("nan")
        """The mean loss of the last training."""
        self.flops = 0
        """The operations counted so far. To count those of one turn, set it to 0 before the turn."""
        self.samples = 0.0
        """The samples trained on so far; a pass without training counts as a third. A device's time grows with it."""
        self._chain = linear_chain(module) if trainer == "fused" else ""
        self._fused = self._fuse()
        self._prior: Vector | None = None
        self._class_weights: Vector | None = None
        self._reasons: dict[bool, str] = {}
        self._counter: ModelRunner | None = None
        """The runner that counts the work. None: this one. A runner made by :meth:`on` counts on its origin."""

    @property
    def buffers(self) -> Vector:
        """A copy of the module's float buffers (BatchNorm's statistics); empty where it has none."""
        return self.flat.read("buffers")

    @buffers.setter
    def buffers(self, values: Vector) -> None:
        """Load the module's float buffers."""
        self.flat.load(values, "buffers")

    @property
    def prior(self) -> Vector | None:
        """Return the vector that is added to the outputs: the client's log prior, or None."""
        return self._prior

    @contextmanager
    def adding(self, prior: Vector | None, class_weights: Vector | None = None) -> Iterator[None]:
        """In this block add `prior` to the outputs wherever a loss or a score is taken, and multiply each example's
        loss by the weight of its class."""
        self._set_client(prior, class_weights)
        try:
            yield
        finally:
            self._set_client(None, None)

    def _set_client(self, prior: Vector | None, class_weights: Vector | None) -> None:
        self._prior, self._class_weights = prior, class_weights
        if self._fused is not None:
            self._fused.set_client(prior, class_weights)

    def loss_of(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of each example, with the prior and the weights of the classes."""
        losses = self.objective.loss(self.shifted(outputs), targets)
        return losses if self._class_weights is None else losses * tensor_of(self._class_weights, self.device)[targets]

    def shifted(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs with the prior added, where there is one."""
        return outputs if self._prior is None else outputs + tensor_of(self._prior, self.device)

    def _fuse(self) -> FusedTrainer | None:
        """The fused trainer on the runner's samples, where it is asked for and takes the model."""
        if isinstance(self._chain, str):
            return None
        raw, shape = self._inputs.reshape(len(self._inputs), -1).numpy(), self._inputs.shape[1:]
        scale, shift = (
            np.ascontiguousarray(np.broadcast_to(of.numpy(), shape).reshape(-1), np.float32)
            for of in (self._scale, self._shift)
        )
        samples = RawSamples(raw, self._learnt.numpy(), scale, shift, self._missing)
        return FusedTrainer(self._chain, samples, self.objective)

    @property
    def layout(self) -> Layout:
        """Where each tensor stands in the vector."""
        return self.flat.layout

    @property
    def targets(self) -> torch.Tensor:
        """The targets of all samples."""
        return self._targets

    @cached_property
    def _costs(self) -> dict[str, int]:
        return costs(self.flat.module, self.prepare(self._inputs[:1]))

    @cached_property
    def _base_flops(self) -> int:
        """The operations of the base for one sample. It has a forward pass and one back to its inputs, no third."""
        return sum(self._costs.get(name, 0) * tensor.numel() for name, tensor in base_of(self.flat.module))

    def count(self, samples: int, mask: Mask | None = None, passes: int = TRAINING) -> None:
        """Count the operations of `samples` samples with the weights of `mask`. A training step is three passes."""
        counter = self._counter or self
        counter.flops += samples * passes * forward_flops(self.layout, self._costs, mask)
        counter.flops += samples * min(passes, TRAINING - 1) * self._base_flops
        counter.samples += samples * passes / TRAINING

    def _count_step(self, samples: int, transform: WeightTransform) -> None:
        """Count a step of the transform's active weights: forward, back to the inputs, back to the weights."""
        ran, moved = transform.active()
        self.count(samples, ran, TRAINING - 1)
        self.count(samples, moved, 1)
        (self._counter or self).flops += samples * TRAINING * transform.operations

    def batch(self, indices: Indices, augment: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Return prepared inputs and learnt targets of some samples, on the device; images in channels_last memory."""
        chosen = torch.from_numpy(indices)
        inputs = self._inputs[chosen]
        if augment:
            inputs = crop_and_flip(inputs) if self._redrawn is None else torch.from_numpy(self._redrawn.draw(indices))
        return self.prepare(inputs), self._learnt[chosen].to(self.device)

    def prepare(self, inputs: torch.Tensor) -> torch.Tensor:
        """Prepare raw inputs for the model: on the device, normalised, with missing values marked."""
        inputs = inputs.to(self.device)
        if self._packed or not (inputs.is_floating_point() or inputs.dtype == torch.uint8):
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
            return checked_outputs(self.flat.module(inputs))

    def outputs(self, model: Model, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs of `model` for a batch of prepared inputs."""
        if isinstance(model, np.ndarray):
            return self.forward(model, inputs)
        with torch.no_grad():
            return model.predict(RunnerForward(self), inputs)

    def embed(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        """The embeddings of a batch of prepared inputs with these weights, in evaluation mode."""
        with LastInput(self.flat.module, self.layout) as last:
            self.forward(weights, inputs)
        return last.embeddings()

    def predict(self, model: Model, inputs: Array) -> Array:
        """Predictions for raw inputs, in the units of the data set."""
        parts = torch.split(torch.from_numpy(inputs), EVAL_BATCH)
        outputs = torch.cat([self.outputs(model, self.prepare(part)) for part in parts])
        predictions: Array = self.objective.predict(outputs).cpu().numpy()
        return predictions

    def score(self, model: Model, indices: Indices) -> float:
        """The task's own metric of `model` on these samples, whatever the run measures; NaN where there are none."""
        if not len(indices):
            return float("nan")
        outputs = self._outputs_of(model, indices, SCORE_BATCH if isinstance(model, np.ndarray) else EVAL_BATCH)
        return self.objective.metric(self.objective.predict(outputs).cpu().numpy(), self._targets.numpy()[indices])

    def scores(
        self, model: Model, test: Indices, validation: Indices, checked: Model | None = None
    ) -> list[tuple[float, ...]]:
        """All metrics of `model` on test samples, and of `model` or the one that is `checked` on validation samples."""
        parts, targets = (test, validation), self._targets.numpy()
        if checked is None:
            found = self.test_outputs(model, *parts)
        else:
            found = [*self.test_outputs(model, test), *self.test_outputs(checked, validation)]
        threshold = self.objective.threshold(found[1], targets[validation])
        pairs = zip(found, parts, strict=True)
        return [self.objective.measure(outputs, targets[part], threshold) for outputs, part in pairs]

    def test_outputs(self, model: Model, *parts: Indices) -> list[torch.Tensor]:
        """The outputs of `model` on each part of samples, with the prior.

        A vector is tested on all parts in one pass. A predictor may use the whole batch, so its batches mix no parts.
        """
        if isinstance(model, np.ndarray):
            outputs = self._outputs_of(model, np.concatenate(parts), SCORE_BATCH)
            ends = list(accumulate(map(len, parts)))
            return [outputs[end - len(part) : end] for part, end in zip(parts, ends, strict=True)]
        return [self._outputs_of(model, part, EVAL_BATCH) for part in parts]

    def _outputs_of(self, model: Model, indices: Indices, batch: int) -> torch.Tensor:
        """The outputs of `model` for these samples, with the prior."""
        if not len(indices):
            return torch.zeros(0, 1)
        if self._fused is not None and isinstance(model, np.ndarray):
            starts = range(0, len(indices), batch)
            found = [self._fused.outputs(model, indices[i : i + batch]) for i in starts]
            outputs = found[0] if len(found) == 1 else torch.cat(found)
        else:
            pieces = torch.split(torch.from_numpy(indices), batch)
            outputs = torch.cat([self.outputs(model, self.prepare(self._inputs[piece])) for piece in pieces])
        return self.shifted(outputs)

    def on(self, inputs: Array, targets: Array, objective: Objective) -> ModelRunner:
        """Return a runner with the same module and device, other raw samples of the same units, and another objective.

        Its work is counted on this runner.
        """
        out = ModelRunner.__new__(ModelRunner)
        out.__dict__.update(self.__dict__)
        out._inputs, out._targets, out.objective = view_of(inputs), view_of(targets), objective
        out._learnt = view_of(objective.learnt(targets))
        out._counter, out._fused = self._counter or self, out._fuse()
        out._prior = out._class_weights = None
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
                found.append(self.loss_of(self.outputs(model, inputs), targets))
        out: Array = torch.cat(found).cpu().numpy()
        return out

    def gradient(self, weights: Vector, indices: Indices) -> Vector:
        """The gradient of the mean loss over these samples, in evaluation mode."""
        if self._fused is not None:
            self.count(len(indices))
            return self._fused.gradient(weights, indices)[0]
        self.flat.load(weights)
        self.flat.module.eval()
        self.flat.gradient.zero_()
        for start in range(0, len(indices), EVAL_BATCH):
            inputs, targets = self.batch(indices[start : start + EVAL_BATCH])
            losses = self.loss_of(checked_outputs(self.flat.module(inputs)), targets)
            torch.autograd.backward(losses.sum() / len(indices))
        self.count(len(indices))
        return self.flat.gradient.cpu().numpy().copy()

    def train(self, job: TrainJob) -> Trained:
        """Train as the job says. Every local step of every method is taken here or in :meth:`iterate`."""
        if job.queries is not None:
            return self._train_private(job, job.queries)
        if self._fused is not None and job.transform is None and job.loss is None and not job.config.augment:
            return self._finished(job, self._fused.train(job))
        self.flat.load(job.start)
        self.flat.train()
        steps = TrainSteps(self.flat, job)
        total, seen = torch.zeros((), device=self.device), 0
        last = None if job.loss is None else LastInput(self.flat.module, self.layout)
        with job.seeded, last or nullcontext():
            for indices, importance in job.batches:
                inputs, targets = self.batch(indices, job.config.augment)
                scale = None if importance is None else tensor_of(importance, self.device)
                for _ in range(job.config.repeats):
                    outputs = checked_outputs(steps.forward(inputs))
                    losses = self.loss_of(outputs, targets)
                    if job.loss is not None and last is not None:
                        losses = losses + _per_example(job.loss(outputs, last.embeddings(), targets), losses)
                    losses = losses if scale is None else losses * scale
                    torch.autograd.backward(losses.mean())
                    with torch.no_grad():
                        steps.step()
                        total += losses.detach().sum()
                    seen += len(indices)
                    if job.transform is not None:
                        self._count_step(len(indices), job.transform)
        with torch.no_grad():
            moments, transform = steps.finish()
        return self._finished(job, Trained(self.flat.read(), _mean(total, seen), seen, moments, transform))

    def _finished(self, job: TrainJob, trained: Trained) -> Trained:
        """Count a training, if its steps were not counted one by one, and refuse one that has diverged."""
        self.loss, seen = trained.loss, trained.examples
        if job.transform is None:
            self.count(seen, job.mask)
        # A training that has seen nothing has no loss, and one with a budget tells none.
        told = not seen or job.queries is not None or math.isfinite(trained.loss)
        if not (told and is_finite(trained.weights)):
            raise job.diverged(trained.loss, seen)
        return trained

    def _train_private(self, job: TrainJob, queries: Iterator[tuple[Indices, Query]]) -> Trained:
        """Train by the answers to queries. The loss and the number of samples are secret: the loss is NaN, the number
        the expected one.
        """
        self.flat.load(job.start)
        self.flat.train()
        rule, seen = rule_of(job, self.flat.weights), 0.0
        with job.seeded:
            for indices, query in queries:
                with torch.no_grad():
                    rule.step(self.answer(indices, query, job.mask, job.config.augment))
                seen += query.expected
        return self._finished(job, Trained(self.flat.read(), math.nan, round(seen), rule.moments()))

    def answer(self, indices: Indices, query: Query, mask: Mask | None = None, augment: bool = False) -> torch.Tensor:
        """Return the answer to a query about these samples at the module's present weights (part 0 of the rule)."""
        mask = None if mask is None or mask.all() else mask
        within = None if mask is None else tensor_of(mask, self.device)
        if self._fused is not None and not augment:
            total = torch.from_numpy(self._fused.clipped_sum(self.flat.weights.numpy(), indices, query.clip, mask))
            return privatised(total, query, within)
        ghosts = not self._mixing
        total = torch.zeros(self.layout.size, device=self.device)
        most = ghost.PIECE if ghosts else max(1, MOST_GRADIENTS // self.layout.size)
        for piece in torch.split(torch.from_numpy(indices), most):
            if ghosts and len(piece):
                inputs, targets = self.batch(piece.numpy(), augment)
                losses = partial(self._each_loss, targets=targets)
                total += ghost.clipped_sum(self.flat.module, self.layout, inputs, losses, query.clip, within)
            else:
                total += clipped_sum(self.example_gradients(piece.numpy(), augment), query.clip, within)
        return privatised(total, query, within)

    def _each_loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of each example by itself, even if the objective mixes those of a batch."""

        def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.loss_of(output[None], target[None])[0]

        found: torch.Tensor = vmap(loss)(checked_outputs(outputs), targets)
        return found

    @property
    def _mixing(self) -> str:
        """Return why the module may mix the examples of a batch in its present mode; they then run one by one."""
        training = self.flat.module.training
        if training not in self._reasons:
            self._reasons[training] = ghost.reason_against(self.flat.module)
        return self._reasons[training]

    def private_gradient(self, weights: Vector, indices: Indices, query: Query) -> Vector:
        """The answer to a query about these samples at `weights`, in evaluation mode."""
        self.flat.load(weights)
        self.flat.module.eval()
        self.count(round(query.expected))
        with torch.no_grad():
            return self.answer(indices, query).cpu().numpy()

    def example_gradients(self, indices: Indices, augment: bool = False) -> torch.Tensor:
        """The gradient of each sample's loss, a row each. Every sample runs by itself, whatever the model mixes."""
        if not len(indices):
            return torch.zeros(0, self.layout.size, device=self.device)
        weights = {name: parameter.detach() for name, parameter in parameters_of(self.flat.module)}
        try:
            found = self._per_example(weights, *self.batch(indices, augment))
        except (RuntimeError, ValueError) as error:
            what = "the model has no gradient of one example by itself, which privacy needs"
            raise InputError(f"{what}: {one_line(error)[:200]}") from None
        return torch.cat([found[name].reshape(len(indices), -1) for name in weights], 1)

    @cached_property
    def _per_example(self) -> Callable[..., dict[str, torch.Tensor]]:
        def loss(weights: dict[str, torch.Tensor], inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            outputs = checked_outputs(functional_call(self.flat.module, weights, (inputs[None],)))
            return self.loss_of(outputs, target[None])[0]

        return vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")

    def iterate(
        self,
        start: Vectors,
        step: Step,
        batches: Iterator[tuple[Indices, ...]],
        config: TrainConfig,
        ask: NextQuery | None = None,
    ) -> Vectors:
        """Move vectors by a method's own `step`, batch by batch, as often on each as the config says.

        With `ask`, each gradient is the answer to a query of its own, and the batches only count.
        """
        vectors = start
        total, seen = torch.zeros((), device=self.device), 0
        self.flat.load(start[0])
        self.flat.train()
        for chosen in batches:
            drawn = tuple(Minibatch(self, indices, config, ask) for indices in chosen)
            with np.errstate(over="ignore", invalid="ignore"):  # divergence is named below
                for _ in range(config.repeats):
                    vectors = step(vectors, drawn)
            total += sum((batch.total for batch in drawn), torch.zeros((), device=self.device))
            seen += sum(batch.seen for batch in drawn)
        self.loss = loss = _mean(total, seen) if ask is None else math.nan
        seen = seen if ask is None else 0
        if not ((np.isfinite(loss) or not seen) and all(np.isfinite(vector).all() for vector in vectors)):
            raise Diverged(f"the loss is {loss:g} after {seen} samples: lower the learning rates, or set clip")
        return vectors


@dataclass(frozen=True)
class RunnerForward:
    """The runner's interface for predictors: outputs and embeddings of its module."""

    runner: ModelRunner

    def __call__(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs for a batch."""
        return self.runner.forward(weights, inputs)

    def embed(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        """The embeddings of a batch."""
        return self.runner.embed(weights, inputs)


def _per_example(term: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Return a term of the loss; raise an error unless it has one number per example."""
    if term.shape != losses.shape:
        found = tuple(term.shape)
        raise InputError(f"a loss term has shape {found}: return one number per example, {len(losses)} here")
    return term


def _mean(total: torch.Tensor, seen: int) -> float:
    """The mean loss of the samples seen; NaN where there were none."""
    return float(total) / seen if seen else float("nan")


def is_finite(vector: Vector) -> bool:
    """Return whether all numbers are finite. The sum of squares decides, unless it overflows float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        square = float(np.dot(vector, vector))
    return math.isfinite(square) or bool(np.isfinite(vector).all())


def channels_last(images: torch.Tensor) -> torch.Tensor:
    """Images in channels_last memory. One channel makes both formats look the same to torch, so strides are set.

    >>> channels_last(torch.zeros(2, 1, 4, 4)).stride()
    (16, 1, 4, 1)
    """
    if images.shape[1] == 1:
        n, _, height, width = images.shape
        return images.contiguous().as_strided((n, 1, height, width), (height * width, 1, width, 1))
    return images.contiguous(memory_format=torch.channels_last)
