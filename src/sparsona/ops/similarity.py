"""How alike two updates are."""

import math

import numpy as np

from sparsona.compiled import compiled
from sparsona.message import Vector

TINY = 1e-12
"""A norm below this is no direction."""

_LEAST = TINY**2


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of the angle between two vectors, in float64: within -1..1, and 0 where a norm vanishes.

    >>> cosine(np.array([3, 0], np.float32), np.array([3, 4], np.float32)), cosine(np.zeros(2), np.ones(2))
    (0.6, 0.0)
    """
    a, b = one.astype(np.float64), other.astype(np.float64)
    return cosine_of(float((a * b).sum()), float((a * a).sum()), float((b * b).sum()))


@compiled
def cosine_of(product: float, one: float, other: float) -> float:
    """The cosine, where the inner product and the two squared norms are known."""
    return max(-1.0, min(1.0, product / math.sqrt(one * other))) if min(one, other) >= _LEAST else 0.0
