"""What methods with one averaged model share: its state, and the mean of the replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ServerContext
from sparsona.ops.mean import weighted_mean
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The global model w."""

    weights: Vector


def received(down: Message, local: Local) -> Vector:
    """The global model of this downlink."""
    return down.vector("weights", local.layout.size)


def mean_weights(arrivals: Sequence[Arrival], context: ServerContext) -> Vector:
    """sum n_k w_k / sum n_k over the clients that answered."""
    size = context.task.layout.size
    return weighted_mean((a.message.examples(), a.message.vector("weights", size)) for a in arrivals)
