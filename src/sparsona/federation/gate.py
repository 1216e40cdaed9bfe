"""The gate where replies enter the server: what is damaged, not finite, or out of all proportion is left out.

A reply is checked when it is decoded, once, so that an honest round costs one look at its numbers. Where one is
refused the aggregation is made again without it: methods change nothing in place. The sender is named and the round
goes on. A refused reply counts as lost.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from sparsona.errors import SparsonaError, WireError
from sparsona.federation.delivery import BUFFERS, POOL, Order, PendingReply
from sparsona.message import Message, Numbers, Part, numbers_of
from sparsona.method import Arrival, ClientId
from sparsona.runs.records import AGAIN

log = logging.getLogger(__name__)
R = TypeVar("R")

LARGEST = 1e15
"""No number in a reply is larger: the squares of such numbers leave float32."""

PROPORTION = 1e3
"""No reply is larger, by its norm, than so many times the others' median or the initial model, if that is larger. Where
both are nothing, as in a round of one reply to a model of zeros, there is nothing to compare it with."""


FEWEST = 3
"""Least number of replies whose updates are compared: of two, neither can be called out of proportion."""

LARGEST_SHARE = 10.0
"""A client may move further than the median client if it has more rows, but not beyond this many times the rows."""


class Refused(SparsonaError):
    """A reply that does not count."""


@dataclass(frozen=True)
class Size:
    """The norm of all numbers of a reply but its buffers, that of its buffers, and that of its difference to the
    downlink it answers."""

    whole: float
    buffers: float
    update: float


@dataclass(frozen=True)
class ReplyGate:
    """What a reply must be to count.

    `declared` is how many examples each client may claim, by the samples that it has told at the start and the passes
    over them; `initial` the norm of the initial model. `heaviest` is the most examples by which each client counts in a
    mean; a client that is not in it counts by all that it claims.

    `max_update_norm` times the median of the others bounds an update's norm (0: no bound). A client with n times the
    median's examples may move the square root of n times as far: it takes n times as many steps. A late reply may move
    as far as in all the rounds that it has missed. So may a reply after `AGAIN` others of the client that were left out
    in a row, which `before` counts: with error feedback that is what it has to send. No client is locked out for good,
    and none moves further on average than one that keeps to the bound.
    """

    declared: Mapping[ClientId, int]
    initial: float
    max_update_norm: float = 0.0
    heaviest: Mapping[ClientId, int] = field(default_factory=dict)
    before: Mapping[ClientId, int] = field(default_factory=dict)

    def check(self, arrival: Arrival, order: Order) -> Size:
        """The size of a reply that is sound by itself; else :class:`Refused` says what is wrong with it."""
        message = arrival.message
        if message.stamp.order != order:
            raise Refused(
                f"it answers round {message.stamp.round + 1}, phase {message.stamp.phase}, not what was asked"
            )
        for name, part in message.parts.items():
            for values in numbers_of(part):
                if not _is_bounded(values):
                    how = f"beyond {LARGEST:g}" if np.isfinite(values).all() else "that is not finite"
                    raise Refused(f"{name} holds a number {how}")
        most = self.declared[arrival.client]
        if "examples" in message and not 0 < message.integer("examples") <= most:
            raise Refused(
                f"it claims {message.integer('examples')} examples, and the client has declared at most {most}"
            )
        update = norm_of_update(message, arrival.find_sent) if self.max_update_norm else 0.0
        whole = norm_of(part for name, part in message.parts.items() if name not in (BUFFERS, POOL))
        buffers = norm_of(part for name, part in message.parts.items() if name == BUFFERS)
        return Size(whole, buffers, update)

    def weighed(self, arrival: Arrival) -> Arrival:
        """The reply as it counts in a mean: with no more examples than its sender may count by."""
        message, most = arrival.message, self.heaviest.get(arrival.client)
        if most is None or "examples" not in message or message.integer("examples") <= most:
            return arrival
        return replace(arrival, message=Message.of({**message.parts, "examples": most}, message.stamp))

    def out_of_proportion(self, sizes: Mapping[PendingReply, Size]) -> dict[PendingReply, str]:
        """The replies that are far larger than the others, and why each is refused."""
        found: dict[PendingReply, str] = {}
        wholes = _medians_of_others([size.whole for size in sizes.values()])
        buffers = _medians_of_others([size.buffers for size in sizes.values()])
        updates = _medians_of_others([size.update for size in sizes.values()])
        for (reply, size), whole, buffer, update in zip(sizes.items(), wholes, buffers, updates, strict=True):
            most = PROPORTION * max(self.initial, whole)
            if size.whole > most > 0:
                found[reply] = f"its norm is {size.whole:.3g}, and {most:.3g} is in proportion"
            elif size.buffers > PROPORTION * buffer > 0:
                most = PROPORTION * buffer
                found[reply] = f"the norm of its buffers is {size.buffers:.3g}, and {most:.3g} is in proportion"
            elif self.max_update_norm and len(sizes) >= FEWEST:
                most = self.max_update_norm * update * self._reach(reply, sizes)
                if size.update > most > 0:
                    found[reply] = f"the norm of its update is {size.update:.3g}, and {most:.3g} is allowed"
        return found

    def _reach(self, reply: PendingReply, among: Collection[PendingReply]) -> float:
        """How many times as far as the median client this one may move."""
        usual = max(1, statistics.median(self.declared[one.client] for one in among))
        late = max(one.round for one in among) - reply.round
        waited = AGAIN if self.before.get(reply.client, 0) >= AGAIN else 0
        return (1 + late + waited) * math.sqrt(min(max(1.0, self.declared[reply.client] / usual), LARGEST_SHARE))


def heaviest(declared: Mapping[ClientId, int], factor: float) -> dict[ClientId, int]:
    """The most examples by which each client counts: `factor` times the median of all, and the sum of the others.

    >>> heaviest({"a": 50, "b": 60, "c": 2**40}, 10.0)
    {'a': 600, 'b': 600, 'c': 110}
    """
    if len(declared) < 2:
        return {}
    median, total = statistics.median(declared.values()), sum(declared.values())
    return {client: max(1, min(int(factor * median), total - own)) for client, own in declared.items()}


def norm_of(parts: Iterable[Part]) -> float:
    """The Euclidean norm of all numbers of some parts of a message."""
    return math.sqrt(sum(_square(values) for part in parts for values in numbers_of(part)))


def norm_of_update(message: Message, sent: Callable[[], Message]) -> float:
    """The norm of what a reply changes: of its difference to the downlink where both hold a vector of one name.

    `sent` makes the downlink. It is called only for a reply that holds a vector.
    """
    parts = {name: part for name, part in message.parts.items() if name not in (BUFFERS, POOL)}
    bases = sent().parts if any(isinstance(part, np.ndarray) for part in parts.values()) else {}
    total = 0.0
    for name, part in parts.items():
        base = bases.get(name)
        if isinstance(part, np.ndarray) and isinstance(base, np.ndarray) and part.shape == base.shape:
            total += _square(part - base)
        else:
            total += sum(_square(values) for values in numbers_of(part))
    return math.sqrt(total)


def _is_bounded(values: Numbers) -> bool:
    """Whether all numbers are finite and none is larger than :data:`LARGEST`. The sum of the squares often tells."""
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype == np.float32 and float(np.dot(values, values)) <= LARGEST**2:
            return True
    return not len(values) or max(float(values.max()), -float(values.min())) <= LARGEST


def _square(values: Numbers) -> float:
    wide = values if values.dtype == np.float32 else values.astype(np.float64)
    return float(wide @ wide)


def _medians_of_others(values: Sequence[float]) -> list[float]:
    """For each value the upper median of all the others: 0 where there are none.

    >>> _medians_of_others([5.0, 1.0, 3.0])
    [3.0, 5.0, 5.0]
    """
    if len(values) < 2:
        return [0.0] * len(values)
    order = sorted(range(len(values)), key=values.__getitem__)
    middle, out = (len(values) - 1) // 2, [0.0] * len(values)
    for rank, place in enumerate(order):
        out[place] = values[order[middle if middle < rank else middle + 1]]
    return out


@dataclass
class Screening(Generic[R]):
    """The screening of the replies of one aggregation by the gate; `refused` holds the reason per refused reply."""

    gate: ReplyGate
    read: Callable[[PendingReply], Arrival]
    refused: dict[PendingReply, str] = field(default_factory=dict)
    _sizes: dict[PendingReply, Size] = field(default_factory=dict)

    def checked(self, reply: PendingReply) -> Arrival:
        """The reply decoded; the first time it is also checked."""
        try:
            arrival = self.read(reply)
            if reply not in self._sizes:
                self._sizes[reply] = self.gate.check(arrival, reply.order)
            return self.gate.weighed(arrival)
        except WireError as error:
            raise Refused(str(error)) from None

    def aggregated(self, replies: Sequence[PendingReply], aggregate: Callable[[Sequence[PendingReply]], R]) -> R | None:
        """What `aggregate` makes of the replies that pass; None where none does."""
        passing = list(replies)
        while passing:
            try:
                made = aggregate(passing)
            except Refused:
                self._refuse(self._unsound(passing))
            except Exception as error:
                culprits = self._failing_alone(passing, aggregate)
                if len(culprits) in (0, len(passing)):
                    raise error  # the method fails by itself: no client is to blame
                self._refuse(culprits)
            else:
                outliers = self.gate.out_of_proportion({r: self._sizes[r] for r in passing if r in self._sizes})
                if not outliers:
                    return made
                self._refuse(outliers)
            passing = [reply for reply in passing if reply not in self.refused]
        return None

    def _refuse(self, reasons: Mapping[PendingReply, str]) -> None:
        for reply, reason in reasons.items():
            log.warning("round %d: the reply of %s is left out: %s", reply.round + 1, reply.client, reason)
        self.refused.update(reasons)

    def _unsound(self, replies: Sequence[PendingReply]) -> dict[PendingReply, str]:
        found: dict[PendingReply, str] = {}
        for reply in replies:
            try:
                self.checked(reply)
            except Refused as problem:
                found[reply] = str(problem)
        return found

    def _failing_alone(
        self, replies: Sequence[PendingReply], aggregate: Callable[[Sequence[PendingReply]], R]
    ) -> dict[PendingReply, str]:
        found: dict[PendingReply, str] = {}
        for reply in replies:
            try:
                aggregate([reply])
            except Exception as error:  # noqa: BLE001
                found[reply] = str(error) if isinstance(error, SparsonaError) else f"{type(error).__name__}: {error}"
        return found
