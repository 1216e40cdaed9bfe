"""The settings of local training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sparsona.errors import InputError
from sparsona.options import option


@dataclass(frozen=True)
class TrainConfig:
    """How a client trains in a round."""

    epochs: int = option(1, "passes over the client's training examples per round", ge=1)
    steps: int | None = option(None, "batches per round, in place of epochs (not given: epochs)", ge=1)
    batch: int = option(32, "examples per batch", ge=1)
    optimizer: Literal["sgd", "adam"] = option("sgd", "optimizer of the clients")
    lr: float = option(
        0.1, "learning rate of the first round (auto: chosen on validation rows; default for your own data)", gt=0
    )
    momentum: float = option(0.0, "momentum of sgd", ge=0, lt=1)
    weight_decay: float = option(0.0, "weight decay, added to the gradient after clipping", ge=0)
    clip: float | None = option(
        None, "maximum norm of the gradient with proximal term and mask, before weight decay (not given: none)", gt=0
    )
    decay: float = option(1.0, "factor of the learning rate from round to round", gt=0)
    drops: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = option(
        (), "shares of all rounds after which the learning rate falls to a tenth (not given: never)"
    )
    repeats: int = option(1, "steps per batch", ge=1)
    drop_last: bool = option(False, "leave out the last batch of an epoch if it is shorter")
    augment: bool = option(
        False, "shift training images by up to four pixels and mirror half of them, or use a Dataset's own transforms"
    )
    order: Literal["shuffled", "stored"] = option(
        "shuffled",
        "shuffle each epoch, or train class by class (stored; with steps a round continues the last one)",
    )
    logit_prior: bool = option(
        False, "add the logarithms of the client's class shares to the outputs, in training and in use"
    )

    class_weights: Literal["none", "balanced"] = option(
        "none", "weigh each training example by the inverse share of its class at the client (balanced), or all alike"
    )

    @property
    def has_moments(self) -> bool:
        """True if the optimiser has a state: SGD with momentum, or Adam."""
        return self.optimizer != "sgd" or self.momentum > 0

    def most_examples(self, samples: int) -> int:
        """Return the most examples that a training on `samples` samples sees, in at least one pass.

        >>> TrainConfig(epochs=3).most_examples(10), TrainConfig(steps=4, batch=32, repeats=2).most_examples(10)
        (30, 256)
        """
        seen = self.epochs * samples if self.steps is None else self.steps * self.batch
        return max(samples, self.repeats * seen)

    def batches(self, samples: int) -> int:
        """Return the number of steps of a training on `samples` samples.

        >>> TrainConfig(epochs=2, batch=4).batches(10), TrainConfig(steps=3, repeats=2).batches(10)
        (6, 6)
        """
        whole = samples // self.batch if self.drop_last and samples >= self.batch else -(-samples // self.batch)
        return self.repeats * (self.epochs * whole if self.steps is None else self.steps)

    def check_least(self, least: int) -> None:
        """Refuse a training whose batches could isolate fewer than `least` samples."""
        if self.order == "stored":
            raise InputError(f"training.order=stored is not possible with least_rows={least}: choose shuffled")
        if self.batch < least:
            raise InputError(f"training.batch={self.batch} is below least_rows={least}: choose a larger batch")

    def rate(self, round: int, rounds: int) -> float:
        """Return the learning rate of one round.

        >>> TrainConfig(lr=0.1, drops=(0.75,)).rate(2, 4), round(TrainConfig(lr=0.1, drops=(0.75,)).rate(3, 4), 9)
        (0.1, 0.01)
        """
        return self.lr * self.decay**round * 0.1 ** sum(round >= drop * rounds for drop in self.drops)
