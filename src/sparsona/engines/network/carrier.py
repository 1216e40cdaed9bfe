"""The interface between the network and both its ends: the server's loop and the owner's node.

Flower and the mailbox are carriers. A carrier may lose, repeat, delay and reorder messages without notice. The loop
numbers its messages, pings silent nodes and sends again. A node refuses a message that is older than one it has
answered. Both are written once, here and in :mod:`sparsona.engines.network.engine`, for every carrier.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sparsona.engines.network.flower.started.sparsona_records import BadParcel, Head
from sparsona.engines.network.heads import MessageTooOld
from sparsona.errors import RunError, StoreError
from sparsona.files import write_atomically
from sparsona.method import ClientId

Answer = tuple[Head, bytes]
Body = Callable[[int], bytes]  # reads the body of a message; its argument is the largest accepted size in bytes
REMEMBERED = 64  # numbers of answered messages that a node keeps
HIGHEST = 2**53  # the largest message number: JSON keeps integers exactly up to it


@dataclass(frozen=True)
class Parcel:
    """A message to a client's node, with a growing number. No reply is awaited after `ttl` seconds."""

    client: ClientId
    number: int
    head: Head
    body: bytes
    ttl: float


@dataclass(frozen=True)
class Returned:
    """The result of a parcel: a head and a body, or the reason why there is none. If `lost`, it may be sent again."""

    name: str
    head: Head | None = None
    body: bytes = b""
    why: str = ""
    lost: bool = False


class Carrier(Protocol):
    """Sends parcels, and returns the replies to the named ones."""

    idle: float  # the longest pause between two pulls, in seconds
    silence: float  # seconds without a reply after which a node gets a ping

    @property
    def clients(self) -> Sequence[ClientId]:
        """The registered clients."""

    def push(self, parcels: Sequence[Parcel]) -> list[str | None]:
        """Return the parcels' names; None for a parcel that was not taken and may be sent again."""

    def pull(self, names: Sequence[str]) -> list[Returned]:
        """Return the replies that are there. A parcel that is not named any more needs no reply."""


class Answering(Protocol):
    """Answers the server's messages: :class:`sparsona.engines.network.node.Node`."""

    def answer(self, head: Head, body: Body) -> Answer: ...


class OrderGuard:
    """The owner's end of every carrier: passes messages to the node, unless it has answered a newer one.

    An old order would take the client's memory back to its round. `file` keeps the numbers over a restart.
    """

    def __init__(self, node: Answering, file: Path) -> None:
        self._node, self._file = node, file
        self._answered = _numbers(file)

    def has_answered(self, number: int) -> bool:
        """True if the message with this number was answered."""
        return number in self._answered

    def answer(self, number: int, head: Head, body: Body) -> Answer:
        """Return the node's answer, or `MessageTooOld` if it has answered a newer one. Call `done` once it is sent."""
        newest = max(self._answered, default=0)
        if number <= newest:
            return MessageTooOld(number=newest).head, b""
        return self._node.answer(head, body)

    def done(self, number: int) -> None:
        """Note that a message was answered; raise `StoreError` if this disk takes no note."""
        if number not in self._answered:
            answered = sorted([*self._answered, number])[-REMEMBERED:]
            try:
                write_atomically(self._file, json.dumps(answered))
            except OSError as error:
                raise StoreError(f"cannot write {self._file} ({error.strerror}): make room on this machine") from None
            self._answered = answered


def checked_number(value: object) -> int:
    """Return `value` as a message number; raise `BadParcel` if it is not one."""
    if type(value) is not int or not 0 < value <= HIGHEST:
        raise BadParcel("the message has no number")
    return value


def _numbers(file: Path) -> list[int]:
    if not file.exists():
        return []
    try:
        return sorted(map(checked_number, json.loads(file.read_bytes())))
    except (ValueError, TypeError, BadParcel) as error:
        raise RunError(f"{file} is damaged ({error}): start the node with another --state") from None
