"""The client's side of the contract: its samples, the training loop, its random numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import torch

from sparsona.data.dataset import Array, ClientSplit, Indices
from sparsona.errors import Diverged, InputError
from sparsona.layout import Layout
from sparsona.message import Mask, Vector
from sparsona.method import TRAIN, ClientId, Model, Phase, Task
from sparsona.ops.class_means import ClassMeans
from sparsona.ops.moments import Moments
from sparsona.privacy.mechanism import Meter, Query
from sparsona.training.config import TrainConfig
from sparsona.training.job import LossTerm, Trained, TrainJob, WeightTransform
from sparsona.training.minibatch import Step, Vectors
from sparsona.training.objective import Objective
from sparsona.training.runner import EVAL_BATCH, ModelRunner
from sparsona.training.step import Proximal, clipped_sum, privatised
from sparsona.words import counted

Rows: TypeAlias = Indices | slice
"""Places among a client's training examples."""

ALL = slice(None)


@dataclass(frozen=True)
class Local:
    """One client in one round: its samples, the training loop, its random numbers, and no other client's data.

    `max_epochs`, if the owner sets it, limits the passes over the samples in one training. With `least_rows`, all that
    may travel is computed on that many samples, and no batch leaves fewer out of a pass: the difference of two replies
    would otherwise reveal single samples.

    With a `meter`, the client has a privacy budget: training and gradients are answers to queries, which the meter
    counts, samples and noises. Raw functions of the rows are refused, so all results of a method's turns are
    differentially private.
    """

    client: ClientId
    round: int
    task: Task
    config: TrainConfig
    split: ClientSplit
    runner: ModelRunner
    phase: Phase = TRAIN
    max_epochs: int | None = None
    least_rows: int = 1
    meter: Meter | None = None

    @property
    def layout(self) -> Layout:
        """The place of each tensor in the vector."""
        return self.task.layout

    @property
    def examples(self) -> int:
        """The number of local training examples."""
        return len(self.split.train)

    def inputs(self, rows: Rows = ALL) -> torch.Tensor:
        """Return prepared inputs of all training examples, or of those at `rows`."""
        self._refuse("inputs")
        return self.runner.batch(self.split.train[rows])[0]

    def targets(self, rows: Rows = ALL) -> Array:
        """Return the targets of all training examples, or of those at `rows`."""
        self._refuse("targets")
        found: Array = self.runner.targets[torch.from_numpy(self.split.train[rows])].numpy()
        return found

    def embed(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of prepared inputs: the inputs of the last trained layer, one flat row each.

        It counts as one forward pass.
        """
        self.runner.count(len(inputs), passes=1)
        return torch.cat([self.runner.embed(weights, part) for part in torch.split(inputs, EVAL_BATCH)])

    def class_means(self, weights: Vector) -> tuple[ClassMeans, Vector]:
        """The mean embedding of each class among the training examples, and the number of its examples.

        Classes of fewer than `least_rows` examples are left out. Counted as one forward pass.
        """
        labels, embeddings = self.targets(), self.embed(weights, self.inputs()).cpu().numpy()
        found = ClassMeans.of(embeddings, labels, self.task.classes, self.least_rows)
        return found, np.bincount(labels)[found.known.indices].astype(np.float32)

    def rows(self, part: Literal["train", "validation"]) -> tuple[Array, Array]:
        """Return training or validation examples, as inputs and learnt targets, for models that never travel."""
        self._refuse("rows")
        inputs, targets = self.runner.batch(self.split.train if part == "train" else self.split.validation)
        return inputs.flatten(1).cpu().numpy(), targets.cpu().numpy()

    def validation_outputs(self, model: Model) -> torch.Tensor:
        """Return the outputs of `model` for the validation examples; only sums over many of them may travel."""
        self._refuse("validation outputs")
        pieces = torch.split(torch.from_numpy(self.split.validation), EVAL_BATCH)
        return torch.cat([self.runner.outputs(model, self.runner.batch(piece.numpy())[0]) for piece in pieces]).cpu()

    def validation_targets(self) -> Array:
        """Return the learnt targets of the validation examples."""
        self._refuse("validation targets")
        found: Array = self.runner.batch(self.split.validation)[1].cpu().numpy()
        return found

    def count_other(self, operations: int) -> None:
        """Count `operations` outside of the net; a device takes as long as for a pass over the rows."""
        self.runner.flops += operations
        self.runner.samples += self.examples

    def countable_targets(self) -> Array:
        """Return the targets for counts that travel, without classes of fewer than `least_rows` examples."""
        targets = self.targets()
        if self.least_rows == 1 or not self.task.classes:
            return targets
        common: Array = targets[np.bincount(targets)[targets] >= self.least_rows]
        return common

    def on(self, inputs: Array, targets: Array, objective: Objective) -> Local:
        """Return the client with other training samples, such as public ones, which no budget protects."""
        none = np.zeros(0, np.int64)
        split = ClientSplit(self.client, np.arange(len(inputs)), none, none)
        return replace(self, split=split, least_rows=1, meter=None, runner=self.runner.on(inputs, targets, objective))

    def some(self, share: float, purpose: str) -> Local:
        """Return the client with a random share of its training examples, at least one.

        It keeps all examples if fewer than `least_rows` would be taken or left out, or with a privacy budget.
        """
        count = max(1, int(share * self.examples))
        if self.meter is not None or min(count, self.examples - count) < self.least_rows:
            return self
        chosen = self.rng(f"some/{purpose}").choice(self.split.train, count, replace=False)
        return replace(self, split=replace(self.split, train=chosen))

    def rng(self, purpose: str, layer: int = 0) -> np.random.Generator:
        """Return this client's generator for one purpose in this round."""
        return self.runner.chance.rng(purpose, round=self.round, client=self.client, layer=layer)

    def train(
        self,
        start: Vector,
        config: TrainConfig | None = None,
        *,
        mask: Mask | None = None,
        proximal: Proximal | None = None,
        importance: Array | None = None,
        moments: Moments | None = None,
        transform: WeightTransform | None = None,
        loss: LossTerm | None = None,
        stream: str = "train",
    ) -> Trained:
        """Train from `start`, by the experiment's config unless another is given.

        Only the weights of `mask` move. `proximal` pulls towards a vector, `importance` weighs the training examples,
        `moments` continues an earlier optimiser, and `transform` makes of the trained weights those that each batch
        runs with. `loss(outputs, embeddings, targets)` gives one number per example, which is added to its loss. Two
        trainings in one turn need different `stream` names.
        """
        config = self._allowed(config or self.config)
        raw = {"weighted examples": importance, "gradients through a transform": transform, "loss term": loss}
        for what, given in raw.items():
            if given is not None:
                self._refuse(what)
        if importance is not None and self.least_rows > 1:
            self._check_spread(importance)
        pairs = self.runner.needs_pairs or (transform is not None and transform.needs_pairs)
        own = None if transform is None else transform.config
        job = TrainJob(
            start,
            config,
            self._batches(config, importance, stream, pairs),
            config.rate(self.round, self.task.rounds),
            self._seeded(stream),
            mask=mask,
            proximal=proximal,
            moments=moments,
            transform=transform,
            loss=loss,
            transform_rate=0.0 if own is None else own.rate(self.round, self.task.rounds),
            queries=None if self.meter is None else self._queries(self.meter, config.batches(self.examples)),
        )
        with self._named():
            trained = self.runner.train(job)
        if self.meter is not None:
            return replace(trained, examples=min(trained.examples, config.most_examples(self.examples)))
        return trained

    def iterate(
        self, start: Vectors, step: Step, config: TrainConfig | None = None, *, batches: int = 1, stream: str = "train"
    ) -> Vectors:
        """Move vectors by steps of the method's own: as many as the config has batches, times its `repeats`.

        Each step gets `batches` batches, drawn independently. This is for methods that need gradients at other points
        than the one that moves; :meth:`train` has none of these.
        """
        config = self._allowed(config or self.config)
        if config.has_moments:
            raise InputError("this method takes plain gradient steps: set optimizer=sgd and momentum=0")
        if (meter := self.meter) is not None:
            none = np.zeros(0, np.int64)
            counted_only = ((none,) * batches for _ in range(config.batches(self.examples) // config.repeats))
            with self._named(), self._seeded(stream):
                return self.runner.iterate(start, step, counted_only, config, lambda: next(self._queries(meter)))
        names = [stream if i == 0 else f"{stream}/{i}" for i in range(batches)]
        drawn = [
            (indices for indices, _ in self._batches(config, None, name, turn=(i, batches)))
            for i, name in enumerate(names)
        ]
        with self._named(), self._seeded(stream):
            return self.runner.iterate(start, step, zip(*drawn, strict=True), config)

    @property
    def rate(self) -> float:
        """Return the config's learning rate in this round."""
        return self.config.rate(self.round, self.task.rounds)

    def gradient(self, weights: Vector, batch: int | None = None) -> Vector:
        """Return the gradient over all training examples, or over one random batch of that size.

        With a privacy budget, one query answers it, of the budget's own sampling rate.
        """
        if self.meter is not None:
            with self._seeded("gradient"):
                return self.runner.private_gradient(weights, *next(self._queries(self.meter)))
        chosen = self.split.train
        if batch is not None and len(chosen) - (batch := max(batch, self.least_rows)) >= self.least_rows:
            chosen = self.rng("gradient").choice(chosen, batch, replace=False)
        return self.runner.gradient(weights, chosen)

    def mean_losses(self, models: Sequence[Vector]) -> Array:
        """Return the mean loss of each model on the training examples.

        With a privacy budget, one query answers it: the vector of an example's losses is clipped to the norm of equally
        many models that guess.
        """
        if self.meter is None:
            return np.array([self.losses(model).mean() for model in models])
        indices, query = next(self._queries(self.meter))
        # Each example by itself: a model may mix those of a batch.
        found = [self.runner.losses(model, indices[i : i + 1]) for i in range(len(indices)) for model in models]
        self.runner.count(len(models) * round(query.expected), passes=1)
        bound = math.sqrt(len(models)) * math.log(max(self.task.classes, 3))
        losses = torch.tensor(np.array(found, np.float32)).reshape(len(indices), len(models))
        total = clipped_sum(losses, bound)
        return privatised(total * query.clip / bound, query).numpy() * bound / query.clip

    def losses(self, model: Model) -> Array:
        """Return the loss of `model` on each training example, in evaluation mode."""
        self._refuse("losses")
        self.runner.count(self.examples, passes=1)
        return self.runner.losses(model, self.split.train)

    def score(self, model: Model) -> float:
        """Return the metric of `model` on the client's training examples."""
        self._refuse("scores")
        self.runner.count(self.examples, passes=1)
        return self.runner.score(model, self.split.train)

    def _refuse(self, what: str) -> None:
        """Refuse a raw function of the rows, with a privacy budget."""
        if self.meter is not None:
            raise InputError(f"with a privacy budget a client gives no {what}: choose a method that needs none")

    def _queries(self, meter: Meter, count: int = 1) -> Iterator[tuple[Indices, Query]]:
        """Charge `count` queries now; return each with its samples."""
        return ((self.split.train[query.sampled], query) for query in meter.ask(count))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add client and round to the error of a diverging training in this block."""
        try:
            yield
        except Diverged as error:
            raise Diverged(f"client {self.client}, round {self.round + 1}: {error}") from None

    def _allowed(self, config: TrainConfig) -> TrainConfig:
        """Return the config; refuse one with more passes than the owner allows."""
        if self.max_epochs is not None and config.most_examples(self.examples) > self.max_epochs * self.examples:
            passes = config.most_examples(self.examples) / self.examples
            raise InputError(
                f"the owner of {self.client} allows {counted(self.max_epochs, 'epoch')} in a training, not {passes:.1f}"
            )
        if self.least_rows > 1:
            config.check_least(self.least_rows)
        if self.meter is not None and config.order == "stored":
            raise InputError("training.order=stored is not possible with a privacy budget: choose shuffled")
        return config

    def _check_spread(self, importance: Array) -> None:
        """Refuse weights of samples with which fewer than `least_rows` of them count (Kish's effective size)."""
        weights = np.abs(importance.astype(np.float64))
        if weights.sum() ** 2 < self.least_rows * (weights**2).sum():
            raise InputError(f"fewer than {self.least_rows} rows of {self.client} would count in this training")

    def _seeded(self, stream: str) -> AbstractContextManager[None]:
        """Return a block in which torch's generator belongs to this client.

        With a privacy budget, dropout and random transforms are drawn anew for each query, as its noise is: drawn twice
        alike, they would tell which rows were sampled before them.
        """
        if self.meter is not None:
            stream = f"{stream}/query {self.meter.used}"
        return self.runner.chance.torch(stream, round=self.round, client=self.client, device=self.runner.device)

    def _batches(
        self,
        config: TrainConfig,
        importance: Array | None,
        stream: str,
        pairs: bool | None = None,
        turn: tuple[int, int] = (0, 1),
    ) -> Iterator[tuple[Indices, Array | None]]:
        """Return the training's batches; in stored order, `turn` (i, k) takes the i-th of every k batches."""
        rng, n = self.rng(f"batches/{stream}"), self.examples
        pairs = self.runner.needs_pairs if pairs is None else pairs
        if pairs and config.batch == 1:
            raise InputError("the model looks at a whole batch (BatchNorm, or a gate): choose a batch of 2 or more")
        ends = self._ends(config)
        per_epoch = len(ends)
        left = config.steps if config.steps is not None else config.epochs * per_epoch
        if config.order == "stored":
            by_class, (first, every) = self._by_class(), turn
            begin = self.round * left if config.steps is not None else 0
            for number in range(begin, begin + left):
                at = (number * every + first) % per_epoch * config.batch
                chosen = by_class[at : at + config.batch]
                if len(chosen) == 1 and pairs:
                    continue
                yield self.split.train[chosen], None if importance is None else importance[chosen]
            return
        while left > 0:
            order = rng.permutation(n)
            for i in range(min(per_epoch, left)):
                chosen = order[ends[i - 1] if i else 0 : ends[i]]
                if len(chosen) == 1 and pairs:
                    continue
                yield self.split.train[chosen], None if importance is None else importance[chosen]
            left -= per_epoch

    def _ends(self, config: TrainConfig) -> list[int]:
        """Return the ends of a pass's batches; a batch takes a rest of fewer than `least_rows` with it."""
        n, batch = self.examples, config.batch
        ends = [end for end in range(batch, n + 1, batch) if end == n or n - end >= self.least_rows]
        whole = bool(ends) and (ends[-1] == n or (config.drop_last and n - ends[-1] < batch))
        return ends if whole else [*ends, n]

    def _by_class(self) -> Indices:
        """Return the places of the training examples, class by class; without classes, in their order.

        Public samples with other models' outputs as targets have no class, also in a task with classes.
        """
        targets = self.targets()
        if not self.task.classes or targets.ndim > 1 or targets.dtype.kind == "f":
            return np.arange(self.examples)
        return np.argsort(targets, kind="stable")
