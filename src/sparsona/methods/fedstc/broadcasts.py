"""What FedSTC's server remembers, and what its clients make of the broadcasts that they are sent."""

from __future__ import annotations

from dataclasses import dataclass

from sparsona.layout import Layout
from sparsona.message import Message, Ternary, Vector
from sparsona.method import ClientId
from sparsona.methods._feedback import ClientState
from sparsona.ops.moments import EMPTY, Moments
from sparsona.ops.ternary import as_sparse


@dataclass(frozen=True)
class ServerState:
    """W, the residual A_s, the last broadcasts, how many there were, how many each client has applied, and what the
    server's step remembers."""

    weights: Vector
    residual: Vector
    broadcasts: tuple[Ternary, ...]
    count: int
    applied: dict[ClientId, int]
    moments: Moments = EMPTY


def held_by(state: ClientState, down: Message, layout: Layout) -> Vector:
    """The client's model with the broadcasts that came now."""
    if "weights" in down:
        return down.vector("weights", layout.size)
    return sum((as_sparse(down.ternary(f"t{i}"), layout).dense() for i in range(len(down) - 1)), state.weights)
