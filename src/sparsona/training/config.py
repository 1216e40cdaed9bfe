"""The settings of local training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field

from sparsona.errors import InputError
from sparsona.ops.moments import Moments
from sparsona.training.optimizer import Adam, Optimizer, Sgd


@dataclass(frozen=True)
class TrainConfig:
    """How a client trains in a round.

    `epochs` is the number of passes over the client's training examples; `steps`, if given, is the number of batches
    instead. `batch` is the number of examples of a step; `drop_last` leaves out a last batch that is shorter.
    `optimizer` is SGD or Adam; `lr` is the learning rate of the first round; `momentum` is that of SGD.
    `decay` is the factor of the learning rate from round to round; after each of the shares of all rounds in `drops` it
    falls to a tenth. `weight_decay` times the weights is added to the gradient; `clip` is the greatest norm of the
    gradient, taken with the proximal term, after the mask and before the weight decay.
    `repeats` is the number of steps on every batch; `augment` shifts training images by up to four pixels and mirrors
    half of them. `order` is shuffled, anew for every pass, or stored: class by class, and with a number of steps the
    next round begins where this one ends. `logit_prior` adds the logarithms of the client's class shares to the
    outputs, in training and in use.
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
    order: Literal["shuffled", "stored"] = "shuffled"
    logit_prior: bool = False

    @property
    def has_moments(self) -> bool:
        """Whether the optimiser remembers earlier gradients: SGD with momentum, or Adam."""
        return self.optimizer != "sgd" or self.momentum > 0

    def most_examples(self, samples: int) -> int:
        """The most examples that a training on so many samples sees, every pass counted; at least one pass.

        >>> TrainConfig(epochs=3).most_examples(10), TrainConfig(steps=4, batch=32, repeats=2).most_examples(10)
        (30, 256)
        """
        seen = self.epochs * samples if self.steps is None else self.steps * self.batch
        return max(samples, self.repeats * seen)

    def check_least(self, least: int) -> None:
        """Refuse a training in which fewer than `least` samples can be told apart from the others."""
        if self.order == "stored":
            raise InputError(f"training.order=stored is not possible with least_rows={least}: choose shuffled")
        if self.batch < least:
            raise InputError(f"training.batch={self.batch} is below least_rows={least}: choose a larger batch")

    def rate(self, round: int, rounds: int) -> float:
        """The learning rate of one round.

        >>> TrainConfig(lr=0.1, drops=(0.75,)).rate(2, 4), round(TrainConfig(lr=0.1, drops=(0.75,)).rate(3, 4), 9)
        (0.1, 0.01)
        """
        return self.lr * self.decay**round * 0.1 ** sum(round >= drop * rounds for drop in self.drops)

    def make_optimizer(self, rate: float, weights: torch.Tensor, saved: Moments) -> Optimizer:
        """The optimiser of these weights, continued from saved moments."""
        if self.optimizer == "adam":
            return Adam(rate, weights, saved)
        return Sgd(rate, self.momentum, weights, saved)
