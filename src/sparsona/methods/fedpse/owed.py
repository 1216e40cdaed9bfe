"""What FedPSE's server remembers and has for each client, and what a client makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparsona.message import Message, Vector
from sparsona.method import ClientId
from sparsona.methods._feedback import ClientState
from sparsona.ops.by_client import ByClient
from sparsona.ops.packed import Packed, with_added
from sparsona.training.optimizer import EMPTY, Moments


@dataclass(frozen=True)
class Owed:
    """The next update of each client, and what was common to the rounds that a client misses while it trains."""

    updates: ByClient[Packed] = field(default_factory=ByClient)
    missed: ByClient[Packed] = field(default_factory=ByClient)

    def broadcast(self, common: Packed, training: Iterable[ClientId]) -> Owed:
        """With the common choice of a round for everyone; clients that are `training` get it when they are back."""
        updates = {client: update.plus(common) for client, update in self.updates.items()}
        missed = {k: self.missed[k].plus(common) if k in self.missed else common for k in {*self.missed, *training}}
        return Owed(ByClient(updates), ByClient(missed))

    def given(self, chosen: Mapping[ClientId, Packed], before: Owed) -> Owed:
        """With the choice of the clients that answered, and what each had missed `before` this round."""
        new = {k: own.plus(before.missed[k]) if k in before.missed else own for k, own in chosen.items()}
        return Owed(self.updates | new, self.missed.without(new.keys()))


@dataclass(frozen=True)
class ServerState:
    """A model W_s for newcomers, what each client gets next, its last correlation distance d, and what the server's
    step remembers."""

    weights: Vector
    owed: Owed
    distance: dict[ClientId, float]
    moments: Moments = EMPTY


def held_by(state: ClientState, down: Message, size: int) -> Vector:
    """The client's model with what it was sent now."""
    if "update" in down:
        return with_added(state.weights, down.sparse("update", size))
    return down.vector("weights", size) if "weights" in down else state.weights
