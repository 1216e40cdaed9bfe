"""How a client trains: the numbers that decide it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field

from sparsona.training.optimizer import Adam, Moments, Optimizer, Sgd


@dataclass(frozen=True)
class TrainConfig:
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

        >>> TrainConfig(lr=0.1, drops=(0.75,)).rate(2, 4), round(TrainConfig(lr=0.1, drops=(0.75,)).rate(3, 4), 9)
        (0.1, 0.01)
        """
        return self.lr * self.decay**round * 0.1 ** sum(round >= drop * rounds for drop in self.drops)

    def stepper(self, rate: float, weights: torch.Tensor, moments: Moments | None) -> Optimizer:
        """The optimiser of this config, fresh or continued."""
        if self.optimizer == "adam":
            return Adam(rate, weights, moments)
        return Sgd(rate, self.momentum, weights, moments)
