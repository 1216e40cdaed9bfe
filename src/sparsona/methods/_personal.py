"""What a client makes of the models that it trains, in every method whose clients train from a shared model.

`personal.average`: its own model is a running mean of what it has trained. `logit_prior`: its class shares are a shift
of the outputs that it adds to what it receives and takes off what it sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

from sparsona.message import Message, Vector
from sparsona.method import Fit
from sparsona.ops.prior import log_prior, output_bias
from sparsona.training.local import Local

LogitPrior: TypeAlias = Annotated[
    bool, Field(description="add the logarithms of the client's class shares to the outputs, in training and in use")
]


@dataclass(frozen=True)
class Own:
    """The running mean of the models that a client has trained; None before the first, or where none is kept."""

    mean: Vector | None = None


@dataclass(frozen=True)
class Personal:
    """The model that a client uses.

    `average` a: a running mean of the models that it trains, a times the old mean and 1 - a times the new model; 0
    keeps none, and the method's own model is used.
    """

    average: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def mean(self, old: Vector | None, trained: Vector) -> Vector | None:
        """The running mean after one more model; None where none is kept.

        >>> Personal(0.7).mean(np.float32([1]), np.float32([2]))
        array([1.3], dtype=float32)
        """
        if not self.average:
            return None
        share = np.float32(self.average)
        out: Vector = trained if old is None else share * old + (1 - share) * trained
        return out

    def model(self, mean: Vector | None, otherwise: Vector) -> Vector:
        """The model that is used: the running mean where there is one."""
        return otherwise if mean is None else mean

    def answer(self, state: Own, trained: Vector, local: Local, prior: bool) -> Fit[Own]:
        """The trained model goes back, the running mean is kept and used."""
        mean = self.mean(state.mean, trained)
        reply = Message(weights=without_prior(trained, local, prior), examples=local.examples)
        return Fit(Own(mean), reply, self.model(mean, trained))


NO_MEAN = Personal()
"""No running mean is kept."""


def with_prior(shared: Vector, local: Local, prior: bool) -> Vector:
    """A shared model as a client uses it: with the client's log prior on the last bias, if `prior` is asked for."""
    return _shifted(shared, local, np.float32(1)) if prior else shared


def without_prior(own: Vector, local: Local, prior: bool) -> Vector:
    """A client's model as it is shared."""
    return _shifted(own, local, np.float32(-1)) if prior else own


def _shifted(weights: Vector, local: Local, sign: np.float32) -> Vector:
    out = weights.copy()
    out[output_bias(local.layout, local.task.classes)] += sign * log_prior(local.targets(), local.task.classes)
    return out
