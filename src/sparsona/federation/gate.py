"""The gate where replies enter the server: damaged, infinite or disproportionate replies are refused.

A reply is checked once, when it is decoded, so an honest round reads its numbers once. If a reply is refused, the
aggregation is repeated without it; methods change nothing in place. The log names the sender, and the round goes on. A
refused reply counts as lost. What passes is handed to the method.
"""

import logging
import math
import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np

from sparsona.errors import SparsonaError, WireError
from sparsona.federation.delivery import BUFFERS, POOL, Order, PendingReply
from sparsona.message import Message, Numbers, Part, Vector, numbers_of
from sparsona.method import Arrival, ClientId, Method, ServerContext
from sparsona.ops.mean import weighted_mean
from sparsona.runs.records import AGAIN
from sparsona.wire import LONGEST_EMPTY

log = logging.getLogger(__name__)
R = TypeVar("R")

LARGEST = 1e15  # largest absolute value in a reply: squares of larger numbers overflow float32
PROPORTION = 1e3
"""A reply's norm may be at most `PROPORTION` times the larger of the others' median norm and the initial model's norm.
If both are 0, as for one reply to a model of zeros, every norm passes."""


FEWEST = 3  # least number of replies whose updates are compared: with two, neither is the outlier
LARGEST_SHARE = 10.0  # a client with more rows may move further than the median client, up to this ratio of rows


class Refused(SparsonaError):
    """Raised for a reply that does not count."""


@dataclass(frozen=True)
class Size:
    """Three norms of a reply: its numbers without buffers, its buffers, and its difference to the answered downlink."""

    whole: float
    buffers: float
    update: float


@dataclass(frozen=True)
class ReplyGate:
    """The conditions under which a reply counts.

    `declared` is the number of examples that each client may claim: its declared samples times the passes over them.
    `initial` is the norm of the initial model. `heaviest` limits the examples by which a client counts in a mean; a
    client that is not in it has no limit.

    `max_update_norm` times the median of the others bounds an update's norm (0: no bound). A client with n times the
    median's examples may move the square root of n times as far: it takes n times as many steps. A late reply may move
    as far as in all the rounds that it has missed. So may a reply after `AGAIN` refused ones in a row, which `before`
    counts, since error feedback accumulates them. So no client is locked out for good, and none moves further on
    average than a client that keeps to the bound.
    """

    declared: Mapping[ClientId, int]
    initial: float
    max_update_norm: float = 0.0
    heaviest: Mapping[ClientId, int] = field(default_factory=dict)
    before: Mapping[ClientId, int] = field(default_factory=dict)

    def check(self, arrival: Arrival, order: Order) -> Size:
        """Return the size of a reply; raises :class:`Refused` with the reason if the reply by itself is unsound."""
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
        """Return the reply with its examples limited to the sender's `heaviest`."""
        message, most = arrival.message, self.heaviest.get(arrival.client)
        if most is None or "examples" not in message or message.integer("examples") <= most:
            return arrival
        return replace(arrival, message=Message.of({**message.parts, "examples": most}, message.stamp))

    def out_of_proportion(self, sizes: Mapping[PendingReply, Size]) -> dict[PendingReply, str]:
        """Return the replies that are far larger than the others, with the reason for each."""
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
        """Return how many times as far as the median client this one may move."""
        usual = max(1, statistics.median(self.declared[one.client] for one in among))
        late = max(one.round for one in among) - reply.round
        waited = AGAIN if self.before.get(reply.client, 0) >= AGAIN else 0
        return (1 + late + waited) * math.sqrt(min(max(1.0, self.declared[reply.client] / usual), LARGEST_SHARE))


def heaviest(declared: Mapping[ClientId, int], factor: float) -> dict[ClientId, int]:
    """Return the limit of examples per client: `factor` times the median, and the sum of the others.

    >>> heaviest({"a": 50, "b": 60, "c": 2**40}, 10.0)
    {'a': 600, 'b': 600, 'c': 110}
    """
    if len(declared) < 2:
        return {}
    median, total = statistics.median(declared.values()), sum(declared.values())
    return {client: max(1, min(int(factor * median), total - own)) for client, own in declared.items()}


def norm_of(parts: Iterable[Part]) -> float:
    """Return the Euclidean norm of all numbers in some parts of a message."""
    return math.sqrt(sum(_square(values) for part in parts for values in numbers_of(part)))


def norm_of_update(message: Message, sent: Callable[[], Message]) -> float:
    """Return the norm of an update: the reply's difference to the downlink if both hold a vector of one name.

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
    """True if all numbers are finite and at most :data:`LARGEST`; the sum of squares often suffices."""
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype == np.float32 and float(np.dot(values, values)) <= LARGEST**2:
            return True
    return not len(values) or max(float(values.max()), -float(values.min())) <= LARGEST


def _square(values: Numbers) -> float:
    wide = values if values.dtype == np.float32 else values.astype(np.float64)
    return float(wide @ wide)


def _medians_of_others(values: Sequence[float]) -> list[float]:
    """Return for each value the upper median of all others; 0 if there are none.

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
        """Decode a reply, and check it the first time."""
        try:
            arrival = self.read(reply)
            if reply not in self._sizes:
                self._sizes[reply] = self.gate.check(arrival, reply.order)
            return self.gate.weighed(arrival)
        except WireError as error:
            raise Refused(str(error)) from None

    def aggregated(self, replies: Sequence[PendingReply], aggregate: Callable[[Sequence[PendingReply]], R]) -> R | None:
        """Aggregate the replies that pass; None if none does."""
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


Aggregate: TypeAlias = tuple[Any, Vector | None, Vector | None]
"""The server's next state, the clients' mean buffers if they are averaged, and the sum of the pools' statistics."""

AHEAD, LARGE = 2, 2**22
"""Number of replies decoded ahead of the one being aggregated, if together they have at least `LARGE` bytes."""


class Arrivals(Sequence[Arrival]):
    """Replies that are decoded one by one on demand, so that few messages are in memory at a time."""

    def __init__(self, replies: Sequence[PendingReply], read: Callable[[PendingReply], Arrival]) -> None:
        self._replies = replies
        self._read = read

    def __len__(self) -> int:
        return len(self._replies)

    @overload
    def __getitem__(self, index: int) -> Arrival: ...
    @overload
    def __getitem__(self, index: slice) -> list[Arrival]: ...
    def __getitem__(self, index: int | slice) -> Arrival | list[Arrival]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._read(self._replies[index])

    def __iter__(self) -> Iterator[Arrival]:
        """Yield the replies; large ones are decoded ahead in threads."""
        if sum(len(reply.frame) for reply in self._replies) < LARGE:
            yield from map(self.__getitem__, range(len(self)))
            return
        with ThreadPoolExecutor(AHEAD) as helpers:
            coming: deque[Future[Arrival]] = deque()
            for number in range(len(self) + AHEAD):
                if number < len(self):
                    coming.append(helpers.submit(self.__getitem__, number))
                if number >= AHEAD and coming:
                    yield coming.popleft().result()


def reader(
    method: Method[Any, Any], server: Any, asked: ServerContext, decoded: Callable[[PendingReply], Message]
) -> Callable[[PendingReply], Arrival]:
    """Return the function that makes a reply an arrival.

    The downlink that a reply answers is the one kept with it, or else the one that `server` would send now.
    """

    def read(reply: PendingReply) -> Arrival:
        def sent() -> Message:
            known = reply.sent
            return method.send(server, reply.client, asked) if known is None else Message(**known)

        return Arrival(reply.client, decoded(reply), reply.round, sent)

    return read


def aggregation(
    method: Method[Any, Any],
    server: Any,
    context: ServerContext,
    screening: Screening[Aggregate],
    buffers: int,
    pool: int,
) -> Callable[[Sequence[PendingReply]], Aggregate]:
    """Return the function that hands replies with parts to the method; `screening` checks each when it is decoded.

    `buffers` is the number of values in a model's buffers, `pool` the number of statistics per client's pool.
    """

    def aggregated(passing: Sequence[PendingReply]) -> Aggregate:
        filled = [
            reply for reply in passing if len(reply.frame) > LONGEST_EMPTY or len(screening.checked(reply).message)
        ]
        due = Arrivals(filled, screening.checked)
        if not due:
            return server, None, None
        mean = total = None
        if method.buffers == "averaged" and buffers:
            messages = (arrival.message for arrival in due)
            mean = weighted_mean(
                (m.examples() if "examples" in m else 1, m.vector(BUFFERS, buffers)) for m in messages if BUFFERS in m
            )
        told = [arrival.message.vector(POOL, pool) for arrival in due if POOL in arrival.message] if pool else []
        if told:
            total = np.stack(told).sum(0, dtype=np.float64).astype(np.float32)
        return method.aggregate(server, due, context), mean, total

    return aggregated
