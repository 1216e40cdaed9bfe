"""The vectors of a model, whatever it is: one vector, or a dataclass that predicts by several."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from sparsona.message import Vector
from sparsona.method import Model


def leaves(model: Model) -> tuple[Vector, ...]:
    """Return the float32 vectors of a model, in the order of its fields.

    >>> leaves(np.float32([1, 2]))
    (array([1., 2.], dtype=float32),)
    """
    return tuple(_found(model))


def _found(value: Any) -> Iterator[Vector]:
    if isinstance(value, np.ndarray):
        if value.dtype == np.float32:
            yield value
    elif isinstance(value, tuple):
        for inner in value:
            yield from _found(inner)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _found(getattr(value, field.name))


def with_leaves(model: Model, vectors: tuple[Vector, ...]) -> Model:
    """Return the model with other vectors in the places of its own, or as it is where they do not fit."""
    if [v.shape for v in leaves(model)] != [v.shape for v in vectors]:
        return model
    out: Model = _replaced(model, iter(vectors))
    return out


def _replaced(value: Any, vectors: Iterator[Vector]) -> Any:
    if isinstance(value, np.ndarray):
        return next(vectors) if value.dtype == np.float32 else value
    if isinstance(value, tuple):
        return tuple(_replaced(inner, vectors) for inner in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {field.name: _replaced(getattr(value, field.name), vectors) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **held)
    return value
