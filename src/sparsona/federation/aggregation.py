"""Turn replies into the server's next state: decode each, check it at the gate, hand it to the method."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias, overload

import numpy as np

from sparsona.federation.delivery import BUFFERS, POOL, PendingReply
from sparsona.federation.gate import Screening
from sparsona.message import Message, Vector
from sparsona.method import Arrival, Method, ServerContext
from sparsona.ops.mean import weighted_mean
from sparsona.wire import LONGEST_EMPTY

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
        averaged = method.buffers == "averaged" and buffers
        mean = _mean_buffers(due, buffers) if averaged else None
        return method.aggregate(server, due, context), mean, _told(due, pool) if pool else None

    return aggregated


def _told(arrivals: Arrivals, size: int) -> Vector | None:
    """Return the sum of the pools' statistics; None if no client sent any."""
    found = [arrival.message.vector(POOL, size) for arrival in arrivals if POOL in arrival.message]
    if not found:
        return None
    total: Vector = np.stack(found).sum(0, dtype=np.float64).astype(np.float32)
    return total


def _mean_buffers(arrivals: Arrivals, size: int) -> Vector:
    """Return the mean of the received buffers, weighted by examples if the replies name them."""
    messages = (arrival.message for arrival in arrivals)
    return weighted_mean(
        (m.examples() if "examples" in m else 1, m.vector(BUFFERS, size)) for m in messages if BUFFERS in m
    )
