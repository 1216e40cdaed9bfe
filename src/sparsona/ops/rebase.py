"""Move a late model to the present global model: LGA's and PLGA's arithmetic."""

import math
from collections.abc import Sequence

import numpy as np

from sparsona.message import Vector
from sparsona.ops.pairwise import cosine


def share(c: float) -> float:
    """Return e^c / (e + e^c), eq. (9): the weight of the others' direction, at most a half.

    >>> [round(share(c), 5) for c in (1.0, 0.0, -1.0)]
    [0.5, 0.26894, 0.1192]
    """
    return math.exp(c) / (math.e + math.exp(c))


def by_span(values: Sequence[float], spans: Sequence[Sequence[slice]], size: int) -> Vector:
    """Return one number per entry of a vector: each value on its spans, 0 elsewhere.

    >>> by_span([0.5, 2.0], [[slice(0, 1)], [slice(1, 3)]], 4)
    array([0.5, 2. , 2. , 0. ], dtype=float32)
    """
    out = np.zeros(size, np.float32)
    for value, group in zip(values, spans, strict=True):
        for span in group:
            out[span] = value
    return out


def agreement(moved: Vector, delta: Vector, spans: Sequence[Sequence[slice]]) -> list[float]:
    """Return the cosine of two movements per group of spans."""

    def part(vector: Vector, group: Sequence[slice]) -> Vector:
        return vector[group[0]] if len(group) == 1 else np.concatenate([vector[span] for span in group])

    return [cosine(part(moved, group), part(delta, group)) for group in spans]


def correction(factor: Vector, delta: Vector, drift: Vector) -> Vector:
    """Return factor * delta * delta * drift, the second term of eqs. (10) and (11).

    >>> correction(np.float32([0.5]), np.float32([2]), np.float32([3]))
    array([6.], dtype=float32)
    """
    out: Vector = factor * delta * delta * drift
    return out
