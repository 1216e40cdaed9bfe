"""The client's handle on its data, its model and its chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from sparsona.bench import EVAL_BATCH, Bench, Proximal, Step, Trained, Training, Vectors
from sparsona.companion import Companion
from sparsona.dataset import Array, Indices, Share
from sparsona.errors import Diverged, InputError
from sparsona.message import Mask, Vector
from sparsona.method import ClientId, Model, Task
from sparsona.objective import Objective
from sparsona.optimizer import Moments
from sparsona.recipe import Recipe
from sparsona.vector import Layout


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
