"""How messages reach nodes: Flower's Grid behind two functions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

from sparsona.engines.flower.started.sparsona_records import BadParcel, Head, from_record, to_record

PATIENCE = 0.2
"""Seconds that a pull takes at most; what comes later comes out of the next one."""


@dataclass(frozen=True)
class Parcel:
    """A message to a node; nobody waits for its reply after `ttl` seconds."""

    node: int
    head: Head
    body: bytes
    ttl: float


@dataclass(frozen=True)
class Returned:
    """What came back for a parcel: a head and a body, or why there is none. `lost`: it may be sent again."""

    name: str
    head: Head | None = None
    body: bytes = b""
    why: str = ""
    lost: bool = False


class Carrier(Protocol):
    """Takes parcels, and brings what has come back for those that are named."""

    def push(self, parcels: Sequence[Parcel]) -> list[str | None]:
        """The parcels' names; None for one that was not taken, since its node is not there."""

    def pull(self, names: Sequence[str]) -> list[Returned]: ...


class MessageGrid(Protocol):
    """The part of Flower's Grid that is used."""

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str | None]: ...

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]: ...


class FlowerCarrier:
    """Parcels as Flower messages. A reply belongs to the message that it answers, whoever it says it is from.

    Flower blocks while a node uploads its reply, and for minutes if the node dies meanwhile. So every reply is pulled
    by a thread of its own, and those of other nodes do not wait for it.
    """

    def __init__(self, grid: MessageGrid) -> None:
        self._grid = grid
        self._pulling: set[str] = set()
        self._came: SimpleQueue[tuple[str, list[Returned] | Exception]] = SimpleQueue()

    def push(self, parcels: Sequence[Parcel]) -> list[str | None]:
        from flwr.app import Message

        messages = [
            Message(content=to_record(p.head, p.body), dst_node_id=p.node, message_type="query", ttl=p.ttl)
            for p in parcels
        ]
        return [name or None for name in self._grid.push_messages(messages)] if messages else []

    def pull(self, names: Sequence[str]) -> list[Returned]:
        for name in names:
            if name not in self._pulling:
                self._pulling.add(name)
                Thread(target=self._pull, args=(name,), daemon=True).start()
        found: list[Returned] = []
        until = time.monotonic() + PATIENCE
        while self._pulling and (left := until - time.monotonic()) > 0:
            try:
                name, came = self._came.get(timeout=left)
            except Empty:
                break
            self._pulling.discard(name)
            if isinstance(came, Exception):
                raise came
            found += came
        return found

    def _pull(self, name: str) -> None:
        try:
            self._came.put((name, [self._answer(message) for message in self._grid.pull_messages([name])]))
        except Exception as error:  # noqa: BLE001
            self._came.put((name, error))

    def _answer(self, message: Any) -> Returned:
        name = message.metadata.reply_to_message_id
        if message.has_error():
            return Returned(name, why=f"Flower says: {message.error.reason or message.error.code}", lost=True)
        try:
            head, body = from_record(message.content)
        except BadParcel as error:
            return Returned(name, why=str(error))
        return Returned(name, head, body)
