"""A model that a client trains on its own data alone, beside the shared one, and uses together with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field

from sparsona.errors import InputError
from sparsona.message import Vector
from sparsona.method import Model, Task
from sparsona.methods._mixture import Mixture
from sparsona.methods._personal import Personal
from sparsona.training.local import Local

Blend: TypeAlias = Annotated[
    Literal["none", "local"],
    Field(description="local: a second model is trained on the client's data alone, and probabilities are averaged"),
]


@dataclass(frozen=True)
class Alone:
    """The model trained alone, and the running mean of it."""

    weights: Vector
    mean: Vector | None = None


def beside(task: Task, blend: str) -> Alone | None:
    """The second model before the first round, where one is asked for."""
    if blend == "local" and not task.classes:
        raise InputError("blend=local averages the probabilities of classes: it needs a data set with classes")
    return Alone(task.initial) if blend == "local" else None


def trained_alone(alone: Alone | None, local: Local, personal: Personal) -> Alone | None:
    """The second model after a round."""
    if alone is None:
        return None
    weights = local.train(alone.weights, stream="alone").weights
    return Alone(weights, personal.mean(alone.mean, weights))


def blended(own: Vector, alone: Alone | None, personal: Personal) -> Model:
    """The client's model, with equal shares of the second one where there is one."""
    if alone is None:
        return own
    return Mixture((own, personal.model(alone.mean, alone.weights)), np.full(2, 0.5, np.float32))
