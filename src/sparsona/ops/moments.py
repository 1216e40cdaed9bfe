"""The state of an optimiser between two steps, on a client and in the server's step."""

from dataclasses import dataclass

import numpy as np

from sparsona.message import Vector

NONE: Vector = np.zeros(0, np.float32)


@dataclass(frozen=True)
class Moments:
    """Steps taken, first and second moment. An empty vector means zeros."""

    step: int
    first: Vector
    second: Vector


EMPTY = Moments(0, NONE, NONE)
