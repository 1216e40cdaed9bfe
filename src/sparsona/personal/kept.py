"""The best round: which of the models that a client has used stays when training is over.

The best round is chosen on validation rows, by the first metric.
A model is kept by its vectors: it is one vector, or a dataclass that predicts by several.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from sparsona import tree
from sparsona.message import Vector
from sparsona.method import Model


def leaves(model: Model) -> tuple[Vector, ...]:
    """Return the float32 vectors of a model, in the order of its fields.

    >>> leaves(np.float32([1, 2]))
    (array([1., 2.], dtype=float32),)
    """
    return tuple(leaf for leaf in tree.leaves(model) if _is_vector(leaf))


def with_leaves(model: Model, vectors: tuple[Vector, ...]) -> Model:
    """Return the model with other vectors in the places of its own, or as it is where they do not fit."""
    if [v.shape for v in leaves(model)] != [v.shape for v in vectors]:
        return model
    left = iter(vectors)
    out: Model = tree.replaced(model, lambda leaf: next(left) if _is_vector(leaf) else leaf)
    return out


def _is_vector(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype == np.float32


KeepName: TypeAlias = Literal["last", "best", "best-per-client"]


@dataclass(frozen=True)
class KeptModel:
    """The vectors and buffers of the model that a client used after a round, and its validation score."""

    round: int
    vectors: tuple[Vector, ...]
    buffers: Vector | None
    score: float


@dataclass(frozen=True)
class KeptModels:
    """The models that a client keeps: the best one so far, and the newest one."""

    best: KeptModel | None = None
    newest: KeptModel | None = None

    def of_round(self, round: int) -> KeptModel | None:
        """Return the model that was used after a round; None where it is not kept."""
        return next((m for m in (self.newest, self.best) if m is not None and m.round == round), None)

    def noted(self, model: KeptModel, best_round: int) -> KeptModels:
        """Return the kept models after one more evaluation, if the federation chooses the round.

        The federation knows only after the evaluation whether it was the best one. So the newest model is kept beside
        that of `best_round`, the best earlier round (0: none yet).

        >>> first = KeptModels().noted(KeptModel(1, (), None, 0.5), 0)
        >>> kept = first.noted(KeptModel(2, (), None, 0.4), best_round=1)
        >>> kept.best.round, kept.newest.round
        (1, 2)
        """
        return KeptModels(self.of_round(best_round), model)

    def noted_alone(self, model: KeptModel, higher_is_better: bool) -> KeptModels:
        """Return the kept models after one more evaluation, if the client chooses the round by itself.

        >>> kept = KeptModels().noted_alone(KeptModel(1, (), None, 0.5), True)
        >>> kept.noted_alone(KeptModel(2, (), None, 0.5), True).best.round
        1
        """
        return self if self.best is not None and not _better(model, self.best, higher_is_better) else KeptModels(model)

    def model(self, last: Model, round: int | None) -> tuple[Model, Vector | None] | None:
        """Return the kept model of a round (None: the best) with its buffers; None where it is not kept.

        `last` is the client's last model: the kept vectors take the place of its own.
        """
        found = self.best if round is None else self.of_round(round)
        return None if found is None else (with_leaves(last, found.vectors), found.buffers)


def kept_model(round: int, model: Model, buffers: Vector | None, score: float) -> KeptModel:
    """Return the vectors and buffers of a model that a client used after a round."""
    return KeptModel(round, leaves(model), buffers, score)


def _better(one: KeptModel, other: KeptModel, higher_is_better: bool) -> bool:
    """Return whether a model has the better score. Without scores the newer one is taken."""
    if math.isnan(one.score) or math.isnan(other.score):
        return math.isnan(other.score)
    return one.score > other.score if higher_is_better else one.score < other.score
