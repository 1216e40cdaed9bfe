"""Delivery: which downlinks were sent, which replies arrived, and the state from which each side continues.

Replies get lost, come late, or come twice. The server counts a reply once. Its next downlink names the client's last
reply that arrived. Until then the client keeps two states: one in case its reply arrived, one in case it was lost. No
method knows of this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.errors import WireError
from sparsona.federation.setup import Setup
from sparsona.message import Message, Part, Stamp, Vector
from sparsona.method import ClientId, Fit
from sparsona.personal.kept import KeptModels
from sparsona.personal.layer import PersonalState
from sparsona.runs.state import OMIT_NONE

Order: TypeAlias = tuple[int, int]  # a downlink by its round and the number of its phase; later ones are larger


@dataclass(frozen=True)
class ClientMemory:
    """A client's memory between its turns: the method's state, and a second one in case its reply was lost.

    `order` is the client's last turn. `if_lost` is None if both states are the same. `buffers` are the client's own
    (BatchNorm's statistics), if the method does not share them. `personal` is the state of the personal layer; a lost
    reply does not undo it, since the client has trained. `kept` are the models of the best rounds, if they are kept.
    `queries` counts the answered queries of this run, with a privacy budget.

    >>> memory = ClientMemory("a").after(Fit("b", Message(), None, if_lost="c"), Stamp(4))
    >>> memory.resolved(Stamp(5, acked=(4, 0))), memory.resolved(Stamp(5, acked=(2, 0)))
    ('b', 'c')
    """

    state: Any
    if_lost: tuple[Any] | None = None
    order: Order | None = None
    buffers: Vector | None = None
    personal: PersonalState | None = field(default=None, metadata=OMIT_NONE)
    kept: KeptModels | None = field(default=None, metadata=OMIT_NONE)
    queries: int | None = field(default=None, metadata=OMIT_NONE)

    @classmethod
    def fresh(cls, setup: Setup, client: ClientId) -> ClientMemory:
        """Return the memory of a client before its first turn."""
        return cls(setup.method.start_client(setup.task, client), personal=setup.personal.start(setup.task, client))

    def worth_writing(self, before: ClientMemory) -> bool:
        """True if the turn changed the memory, and one of both memories is not empty.

        >>> ClientMemory(None, order=(1, 0)).worth_writing(ClientMemory(None))
        False
        """
        return self is not before and (self._holds_something or before._holds_something)

    @property
    def _holds_something(self) -> bool:
        others = self.if_lost, self.buffers, self.personal, self.kept, self.queries
        return not _nothing(self.state) or any(one is not None for one in others)

    def resolved(self, stamp: Stamp) -> Any:
        """Return the state from which the client continues, given the acknowledgement of this downlink."""
        arrived = self.order is None or (stamp.acked is not None and stamp.acked >= self.order)
        return self.state if arrived or self.if_lost is None else self.if_lost[0]

    def refuse_repeats(self, stamp: Stamp) -> None:
        """Raise an error if the order is not newer than the last one, because it was delivered twice."""
        if self.order is not None and stamp.order <= self.order:
            raise WireError(f"the order of round {stamp.round + 1}, phase {stamp.phase} was carried out before")

    def after(
        self, fit: Fit[Any], stamp: Stamp, buffers: Vector | None = None, personal: PersonalState | None = None
    ) -> ClientMemory:
        """Return the memory after a turn."""
        lost = None if fit.lost is fit.state else (fit.lost,)
        return ClientMemory(fit.state, lost, stamp.order, buffers, personal, self.kept, self.queries)


def _nothing(state: Any) -> bool:
    """True if a state is None or a dataclass of Nones."""
    if is_dataclass(state):
        return all(getattr(state, field.name) is None for field in fields(state))
    return state is None


@dataclass(frozen=True, eq=False)
class PendingReply:
    """A reply on its way: it answers the order (round, phase) and is due in round `due`, not before the second `at`.

    `sent` holds the parts of the downlink that it answers, once the server's state has changed since; `reference` is
    that downlink's name among the references.
    """

    due: int
    client: ClientId
    round: int
    phase: int
    frame: npt.NDArray[np.uint8]
    at: float = 0.0
    sent: dict[str, Part] | None = None
    reference: str = ""

    @property
    def order(self) -> Order:
        """Return the order that the reply answers."""
        return self.round, self.phase


@dataclass(frozen=True)
class LoopState:
    """The state of the server's loop between two rounds, besides the method's own state.

    `acked` is the last order of each client whose reply has arrived, and `holds` the name of that order's downlink
    among the references; `clock` the simulated seconds; `buffers` the mean of the clients' buffers (BatchNorm's
    statistics), once there is one; `pool` the common weights of the clients' pools.
    """

    pending: tuple[PendingReply, ...] = ()
    acked: dict[ClientId, Order] = field(default_factory=dict)
    holds: dict[ClientId, str] = field(default_factory=dict)
    clock: float = 0.0
    buffers: Vector | None = None
    pool: Vector | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class OpenOrder:
    """A downlink whose reply is awaited: its order, and its name among the references.

    `sent` holds its parts, once the server's state has changed since.
    """

    order: Order
    reference: str = ""
    sent: dict[str, Part] | None = None


BUFFERS = "buffers"  # The part in which buffers travel. The loop adds it and takes it out: no method sees it.
POOL = "pool"  # the part of the personal layer: the pool's common weights down, derivatives of the validation loss up


def with_extras(message: Message, buffers: Vector | None, pool: Vector | None) -> Message:
    """Add the loop's own parts, if any; a message without parts stays empty."""
    extras = {name: part for name, part in ((BUFFERS, buffers), (POOL, pool)) if part is not None and len(part)}
    if not extras or not len(message):
        return message
    return Message.of({**message.parts, **extras}, message.stamp)


def without_extras(message: Message) -> tuple[Message, Vector | None, Vector | None]:
    """Return the method's message, and the buffers and the pool's weights that came with it."""
    if BUFFERS not in message and POOL not in message:
        return message, None, None
    parts = {name: part for name, part in message.parts.items() if name not in (BUFFERS, POOL)}
    buffers, pool = (message.vector(name) if name in message else None for name in (BUFFERS, POOL))
    return Message.of(parts, message.stamp), buffers, pool


class Delivery:
    """The server's half: stamp downlinks, take each reply once, and keep the replies that are on their way.

    >>> delivery = Delivery()
    >>> stamp = delivery.send("a", (0, 0))
    >>> reply = PendingReply(0, "a", 0, 0, np.zeros(1, np.uint8))
    >>> delivery.take_in(reply), delivery.take_in(reply)
    (True, False)
    """

    def __init__(self, state: LoopState | None = None) -> None:
        state = state or LoopState()
        self.clock = state.clock
        self.buffers = state.buffers
        self.pool = state.pool
        self._pending = list(state.pending)
        self._acked = dict(state.acked)
        self._holds = dict(state.holds)
        self._open: dict[ClientId, OpenOrder] = {}
        """Each client's last order, until its reply has come."""

    def snapshot(self) -> LoopState:
        """Return the state that a checkpoint must hold."""
        return LoopState(
            tuple(self._pending), dict(self._acked), dict(self._holds), self.clock, self.buffers, self.pool
        )

    @property
    def busy(self) -> frozenset[ClientId]:
        """Return the clients whose replies are on their way or still being made."""
        return frozenset(reply.client for reply in self._pending) | frozenset(self._open)

    def stamp(self, client: ClientId, order: Order) -> Stamp:
        """Return the stamp of a downlink for an evaluation."""
        return Stamp(*order, self._acked.get(client))

    def held_by(self, client: ClientId) -> str:
        """Return the name of the last downlink that the client is known to have; empty if there is none."""
        return self._holds.get(client, "")

    @property
    def references(self) -> set[str]:
        """Return the names of all downlinks that a frame may still be coded against."""
        awaited = {reply.reference for reply in self._pending} | {order.reference for order in self._open.values()}
        return {*self._holds.values(), *awaited} - {""}

    def send(self, client: ClientId, order: Order, reference: str = "") -> Stamp:
        """Return the stamp of a downlink; from now on replies to earlier orders of this client do not count."""
        self._open[client] = OpenOrder(order, reference)
        return self.stamp(client, order)

    def keep_open(self, working: Collection[ClientId]) -> None:
        """Wait for the replies of these clients only; later replies of others do not count."""
        self._open = {client: order for client, order in self._open.items() if client in working}

    def take_in(self, reply: PendingReply) -> bool:
        """Accept a reply if it answers an open order; return False if it came twice or too late."""
        found = self._open.get(reply.client)
        if found is None or found.order != reply.order:
            return False
        del self._open[reply.client]
        if found.reference or found.sent is not None:
            reply = replace(reply, reference=found.reference, sent=found.sent)
        self._pending.append(reply)
        return True

    def arrived(self, round: int) -> list[PendingReply]:
        """Remove and return the replies that have arrived by now, sorted by client."""
        here = [reply for reply in self._pending if reply.due <= round and reply.at <= self.clock]
        self._pending = [reply for reply in self._pending if not (reply.due <= round and reply.at <= self.clock)]
        return sorted(here, key=lambda reply: (reply.client, reply.order))

    def acknowledge(self, replies: Iterable[PendingReply]) -> None:
        """Count these replies; the next downlinks acknowledge them. All others are lost."""
        for reply in replies:
            self._acked[reply.client] = reply.order
            if reply.reference:
                self._holds[reply.client] = reply.reference

    def keep_sent(self, parts: Callable[[ClientId], dict[str, Part]]) -> None:
        """Store the answered downlink with each reply that is still to come."""
        self._pending = [r if r.sent is not None else replace(r, sent=parts(r.client)) for r in self._pending]
        for client, order in self._open.items():
            if order.sent is None:
                self._open[client] = replace(order, sent=parts(client))
