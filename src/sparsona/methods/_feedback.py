"""What methods with error feedback share: the update and the residual together, or a refusal that loses nothing."""

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
    """The model W that the client has, its residual, and the optimiser's memory where that survives a round."""

    weights: Vector
    residual: Vector
    moments: Moments | None = None


def trained_with(
    residual: Vector, start: Vector, local: Local, moments: Moments | None = None
) -> tuple[Trained, Vector] | None:
    """The client after its training, and what it wants to send: its update and the `residual` of earlier ones.

    None, with a warning, if it diverges or the sum is not finite: the caller keeps its state.
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
    """What waits, less what the others have moved the model there since: a mean over the senders counts no silent wish,
    so a wish that one sender has fulfilled for all would be fulfilled once more by each that still has it.

    >>> still_wanted(np.float32([2, 2, -2, 2]), np.float32([1, 3, 1, 0]))
    array([ 1.,  0., -2.,  2.], dtype=float32)
    """
    done = np.where(residual * moved > 0, np.minimum(np.abs(residual), np.abs(moved)), np.float32(0))
    out: Vector = residual - np.copysign(done, residual)
    return out
