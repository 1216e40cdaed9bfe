"""FedPSE: "Personalized Sparsification with Element-wise Aggregation for Federated Learning". Clients send the largest
entries of their updates and keep the others for later (UPS); the server averages each entry over its senders (EWA)
and sends each client the entries that suit it (DPS). A client's model is its start plus all received updates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from sparsona.by_client import ByClient
from sparsona.layout import Layout
from sparsona.message import IndexSet, Message, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import ClientState, trained_with
from sparsona.methods.fedpse.personal import CommonChoice
from sparsona.ops.mean import MergeRule, elementwise_merged
from sparsona.ops.moments import EMPTY, Moments
from sparsona.ops.server import PLAIN_STEP, ServerStep
from sparsona.ops.sparse import Packed, Values, kept, rounded, top_supports, with_added, without
from sparsona.options import option
from sparsona.training.local import Local

ENTRY, HELD = 12, 2**25
"""Bytes per entry of an update, and limit of the updates held between the server's two passes; a larger set is decoded
twice."""


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


@METHODS.add
@dataclass(frozen=True)
class FedPSE(Method[ServerState, ClientState]):
    """Top-k updates up, averaged element by element; a personal top-k choice of the averages down."""

    feedback: ClassVar[str] = "residual"
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    sparsity: float = option(0.9, "share of entries that is left out each way", ge=0, lt=1)
    ewa: bool = option(True, "average each entry over the clients that sent it; false: missing entries count as 0")
    dps: bool = option(True, "each client downloads its own choice of entries; false: all download the same")
    scope: Literal["tensor", "model"] = option("tensor", "top-k within each tensor, or over the whole model")
    broadcast_absent: bool = option(False, "also send a client the common choice of the rounds that it missed")
    opt_state: Literal["fresh", "persist"] = option("fresh", "keep the optimizer's moments between rounds (persist)")
    values: Values = "float32"
    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, Owed(), {})

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial, np.zeros(task.layout.size, np.float32))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        if to in server.owed.updates:
            return Message(update=server.owed.updates[to].sparse())
        if not server.owed.updates or (to in context.task.clients and not self.broadcast_absent):
            return Message()  # it has the initial model, and nothing has come for it since
        return Message(weights=server.weights)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        held, layout = held_by(state, down, local.layout.size), local.layout
        learnt = trained_with(state.residual, held, local, state.moments) if local.examples else None
        if learnt is None:
            return Fit(state, Message(), held)
        trained, wanted = learnt
        moments = trained.moments if self.opt_state == "persist" else None
        sent = self.chosen(wanted, top_supports(wanted, layout.spans(self.scope), self.sparsity), layout)
        kept, reply = ClientState(held, without(wanted, sent), moments), Message(update=sent, examples=trained.examples)
        return Fit(kept, reply, trained.weights, if_lost=replace(kept, weights=state.weights, residual=wanted))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size, spans = context.task.layout.size, context.task.layout.spans(self.scope)
        if ENTRY * kept(size, self.sparsity) * len(arrivals) <= HELD:
            arrivals = list(arrivals)
        replies = ((a.message.examples(), a.message.sparse("update", size)) for a in arrivals)
        merged = elementwise_merged(self.merge, size, replies, absent=not self.ewa)
        mean, moments = self.server.direction(merged, server.moments)
        largest = top_supports(mean, spans, self.sparsity)
        common = CommonChoice.of(self.chosen(mean, largest, context.task.layout), spans)
        same, chosen, distance = Packed.of(common.support), {}, dict(server.distance)
        late: set[ClientId] = set()
        for k, round, update in ((a.client, a.round, a.message.sparse("update", size)) for a in arrivals):
            late |= {k} if round < context.round else set()
            places, distance[k] = common.personal(update, partial(context.rng, "dps", k))
            chosen[k] = Packed.of(self.chosen(mean, places, context.task.layout)) if self.dps else same
        owed = server.owed.broadcast(same, context.unanswered) if self.broadcast_absent else server.owed
        owed = owed.given(chosen, server.owed, late)
        return ServerState(same.added_to(server.weights), owed, distance, moments)

    def chosen(self, vector: Vector, places: IndexSet, layout: Layout) -> Sparse:
        """Return the sent part of a vector: its rounded entries at these places."""
        return rounded(Sparse.take(vector, places), layout.lengths, self.values)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return held_by(state, down, local.layout.size)


def held_by(state: ClientState, down: Message, size: int) -> Vector:
    """Return the client's model after this downlink."""
    if "update" in down:
        return with_added(state.weights, down.sparse("update", size))
    return down.vector("weights", size) if "weights" in down else state.weights
