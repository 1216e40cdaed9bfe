"""What FedPSE's server remembers and has for each client, and what a client makes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sparsona.by_client import ByClient
from sparsona.message import Message, Vector
from sparsona.method import ClientId
from sparsona.methods._feedback import ClientState
from sparsona.ops.moments import EMPTY, Moments
from sparsona.ops.packed import Packed, with_added


@dataclass(frozen=True)
class Owed:
    """The next update of each client, and what was common to the rounds that a client misses while it trains.

    An update is for a client whose reply never counts: it goes back to where it was, and has all that was common since
    in its next one. Only a client whose late reply counts needs what it missed beside its new choice.
    """

    updates: ByClient[Packed] = field(default_factory=ByClient)
    missed: ByClient[Packed] = field(default_factory=ByClient)

    def broadcast(self, common: Packed, training: Iterable[ClientId]) -> Owed:
        """With the common choice of a round for everyone; clients that are `training` get it when they are back.

        A client that trains no more has missed nothing: either its reply counted, or its update holds it all.
        """
        updates = {client: update.plus(common) for client, update in self.updates.items()}
        missed = {k: self.missed[k].plus(common) if k in self.missed else common for k in training}
        return Owed(ByClient(updates), ByClient(missed))

    def given(self, chosen: Mapping[ClientId, Packed], before: Owed, late: Collection[ClientId]) -> Owed:
        """With the choice of the clients that answered, and what the `late` ones had missed `before` this round."""
        missed = {k: before.missed[k] for k in late if k in before.missed}
        new = {k: own.plus(missed[k]) if k in missed else own for k, own in chosen.items()}
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
