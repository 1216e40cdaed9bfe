"""How messages reach nodes: Flower's Grid behind two functions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

from sparsona.engines.network.flower.started.sparsona_records import BadParcel, Head, from_record, to_record

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

    _client: Any
    """What the Grid calls the SuperLink by, once it is connected."""

    @property
    def _runtime_client(self) -> Any:
        """The same, after connecting if need be."""

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str | None]: ...

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]: ...


class FlowerCarrier:
    """Parcels as Flower messages. A reply belongs to the message that it answers, whoever it says it is from.

    Flower blocks while a node uploads its reply, and for minutes if the node dies meanwhile. So the SuperLink is asked
    which replies there are, and then each of them is fetched by a thread of its own: none waits for another's.
    """

    def __init__(self, grid: MessageGrid) -> None:
        self._grid = grid
        self._fetching: set[str] = set()
        self._came: SimpleQueue[Returned | Exception] = SimpleQueue()

    def push(self, parcels: Sequence[Parcel]) -> list[str | None]:
        from flwr.app import Message

        messages = [
            Message(content=to_record(p.head, p.body), dst_node_id=p.node, message_type="query", ttl=p.ttl)
            for p in parcels
        ]
        return [name or None for name in self._grid.push_messages(messages)] if messages else []

    def pull(self, names: Sequence[str]) -> list[Returned]:
        asked = [name for name in names if name not in self._fetching]
        for reply in self._named(asked) if asked else ():
            self._fetching.add(reply.messages_list[0].metadata.reply_to_message_id)
            Thread(target=self._fetch, args=(reply,), daemon=True).start()
        found: list[Returned] = []
        until = time.monotonic() + PATIENCE
        while self._fetching and (left := until - time.monotonic()) > 0:
            try:
                came = self._came.get(timeout=left)
            except Empty:
                break
            if isinstance(came, Exception):
                raise came
            self._fetching.discard(came.name)
            found.append(came)
        return found

    def _named(self, names: Sequence[str]) -> list[Any]:
        """The replies that there are, without their contents, each as an answer of the SuperLink of its own."""
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse

        there = self._grid._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=names))
        pairs = zip(there.messages_list, there.message_object_trees, strict=True)
        return [PullAppMessagesResponse(messages_list=[one], message_object_trees=[tree]) for one, tree in pairs]

    def _fetch(self, reply: Any) -> None:
        try:
            grid = copy(self._grid)
            grid._client = _Replayed(self._grid._runtime_client, reply)
            (message,) = grid.pull_messages([])
            self._came.put(self._answer(message))
        except Exception as error:  # noqa: BLE001
            self._came.put(error)

    def _answer(self, message: Any) -> Returned:
        name = message.metadata.reply_to_message_id
        if message.has_error():
            return Returned(name, why=f"Flower says: {message.error.reason or message.error.code}", lost=True)
        try:
            head, body = from_record(message.content)
        except BadParcel as error:
            return Returned(name, why=str(error))
        return Returned(name, head, body)


class _Replayed:
    """A Grid's connection to the SuperLink that names one reply, which was named before."""

    def __init__(self, client: Any, reply: Any) -> None:
        self._client, self._reply = client, reply

    def PullMessages(self, request: Any) -> Any:
        return self._reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)
