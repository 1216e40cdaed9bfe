"""The vectors of a model, whatever it is: one vector, or a dataclass that predicts by several."""

from __future__ import annotations

from typing import Any

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
