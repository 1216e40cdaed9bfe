"""FedPSE's server state: the pending update of each client."""

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
    """The next update of each client, and the common updates of rounds that a training client misses.

    A client whose reply never counts returns to its old state, and its next update has all common updates since. A
    client whose late reply counts needs the missed common updates besides its new choice.
    """

    updates: ByClient[Packed] = field(default_factory=ByClient)
    missed: ByClient[Packed] = field(default_factory=ByClient)

    def broadcast(self, common: Packed, training: Iterable[ClientId]) -> Owed:
        """Return the state with a round's common choice for all clients; `training` clients get it later.

        A client that is no longer training has missed nothing: its reply counted, or its update holds everything.
        """
        updates = {client: update.plus(common) for client, update in self.updates.items()}
        missed = {k: self.missed[k].plus(common) if k in self.missed else common for k in training}
        return Owed(ByClient(updates), ByClient(missed))

    def given(self, chosen: Mapping[ClientId, Packed], before: Owed, late: Collection[ClientId]) -> Owed:
        """Return the state with the choices of the answering clients, plus what `late` ones missed `before`."""
        missed = {k: before.missed[k] for k in late if k in before.missed}
        new = {k: own.plus(missed[k]) if k in missed else own for k, own in chosen.items()}
        return Owed(self.updates | new, self.missed.without(new.keys()))


@dataclass(frozen=True)
class ServerState:
    """A model W_s for new clients, each client's next update and last correlation distance d, and the step's state."""

    weights: Vector
    owed: Owed
    distance: dict[ClientId, float]
    moments: Moments = EMPTY


def held_by(state: ClientState, down: Message, size: int) -> Vector:
    """Return the client's model after this downlink."""
    if "update" in down:
        return with_added(state.weights, down.sparse("update", size))
    return down.vector("weights", size) if "weights" in down else state.weights
