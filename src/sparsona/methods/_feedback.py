"""Error feedback: the update and the residual are sent together, or kept together."""

import warnings
from dataclasses import dataclass

import numpy as np

from sparsona.errors import Diverged
from sparsona.message import Vector
from sparsona.ops.moments import Moments
from sparsona.training.job import Trained
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The client's model W, its residual, and the optimiser's state if it survives a round."""

    weights: Vector
    residual: Vector
    moments: Moments | None = None


def trained_with(
    residual: Vector, start: Vector, local: Local, moments: Moments | None = None
) -> tuple[Trained, Vector] | None:
    """Train, and return the training and its update plus the `residual`.

    Returns None, with a warning, if it diverges or the sum is not finite: the caller keeps its state.
    """
    try:
        trained = local.train(start, moments=moments)
        wanted = trained.weights - start + residual
        if not np.isfinite(wanted).all():
            raise Diverged(f"client {local.client}, round {local.round + 1}: the update is not finite")
    except Diverged as problem:
        warnings.warn(f"{problem}; nothing is sent", stacklevel=2)
        return None
    return trained, wanted


def still_wanted(residual: Vector, moved: Vector) -> Vector:
    """Reduce a residual by what the others have moved the model there since.

    The mean is over senders only, so one sender moves the model for all; clients that still hold the same residual
    would move it again.

    >>> still_wanted(np.float32([2, 2, -2, 2]), np.float32([1, 3, 1, 0]))
    array([ 1.,  0., -2.,  2.], dtype=float32)
    """
    done = np.where(residual * moved > 0, np.minimum(np.abs(residual), np.abs(moved)), np.float32(0))
    out: Vector = residual - np.copysign(done, residual)
    return out
