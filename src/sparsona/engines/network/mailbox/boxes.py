"""The two ends of a mailbox: the organiser's carrier and the owner's inbox.

    nodes/CLIENT/NUMBER     a message to a node
    server/CLIENT.NUMBER    the reply to it

A receiver removes the files that it has read. A sender removes messages that were answered or are no longer awaited. So
the folder does not grow, not even a copy of it that misses the removals of the other side.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparsona.engines.network.carrier import HIGHEST, Body, OrderGuard, Parcel, Returned
from sparsona.engines.network.flower.started.sparsona_pauses import Backoff
from sparsona.engines.network.flower.started.sparsona_records import BadParcel
from sparsona.engines.network.mailbox.seal import OVERHEAD, SESSION, Envelope, Seal, session_of
from sparsona.engines.network.mailbox.store import SharedFolder
from sparsona.errors import StoreError
from sparsona.method import ClientId
from sparsona.runs.names import file_stem
from sparsona.training.determinism import make_deterministic

log = logging.getLogger(__name__)
owners_log = logging.getLogger("sparsona.node")

SOON, IDLE, SILENCE = 0.1, 30.0, 60.0
"""Seconds: the first and the longest pause between two looks, and the silence after which a node gets a ping."""
MOST_REPLY = 2**31  # Largest reply in bytes. A longer one is removed unread.
LARGEST_BASE, PER_WEIGHT = 2**26, 16
"""Largest message to a node in bytes: a base, and more per weight that the owner allows."""
NUMBER = re.compile("[1-9][0-9]{0,15}")
LEFT = 4  # Largest number of a node's replies in the mailbox. The server awaits one, and perhaps the answer to a ping.


def box_name(client: ClientId) -> str:
    """Return a client's name in the mailbox, in letters that every storage accepts.

    >>> box_name("ward 7")
    'ward=207'
    """
    return file_stem(client).replace("%", "=")


class _Trouble:
    """Logs once that the mailbox or this disk fails, and once that it works again."""

    def __init__(self, notes: logging.Logger) -> None:
        self._notes, self._said = notes, ""

    def note(self, error: StoreError) -> None:
        if str(error) != self._said:
            self._notes.warning("%s; it is tried again and again", error)
        self._said = str(error)

    def over(self) -> None:
        if self._said:
            self._notes.info("it works again")
        self._said = ""


class MailboxCarrier:
    """The organiser's end. `seals` names the registered clients. Only one process at a time may use a mailbox."""

    def __init__(self, store: SharedFolder, seals: Mapping[ClientId, Seal], idle: float = IDLE) -> None:
        self.idle, self.silence = idle, SILENCE
        self._store, self._seals, self.clients = store, seals, sorted(seals)
        self._boxes = {box_name(client): client for client in seals}
        self._session = secrets.token_bytes(SESSION)
        self._waiting: dict[str, str] = {}
        """The paths of the unanswered messages, by the names of their replies."""
        self._trouble = _Trouble(log)

    def clear(self) -> None:
        """Remove the messages of an earlier process. Raises `StoreError` if the mailbox is not reached."""
        for box in self._boxes:
            for name in self._store.files(f"nodes/{box}"):
                self._store.remove(f"nodes/{box}/{name}")

    def close(self) -> None:
        """Remove the unanswered messages."""
        self._forget(self._waiting)

    def push(self, parcels: Sequence[Parcel]) -> list[str | None]:
        names: list[str | None] = []
        for parcel in parcels:
            box, envelope = box_name(parcel.client), Envelope(False, parcel.client, parcel.number, self._session)
            name, path = f"{box}.{parcel.number}", f"nodes/{box}/{parcel.number}"
            try:
                self._store.put(path, self._seals[parcel.client].close(envelope, parcel.head, parcel.body))
            except StoreError as error:
                self._trouble.note(error)
                return names + [None] * (len(parcels) - len(names))
            self._waiting[name] = path
            names.append(name)
        return names

    def pull(self, names: Sequence[str]) -> list[Returned]:
        found: list[Returned] = []
        try:
            for name, size in self._store.files("server").items():
                if name.rpartition(".")[0] not in self._boxes:
                    continue
                if name in names and (returned := self._returned(name, size)) is not None:
                    found.append(returned)
                self._store.remove(f"server/{name}")
            self._forget(self._waiting.keys() - names | {one.name for one in found})
            self._trouble.over()
        except StoreError as error:
            self._trouble.note(error)
        return found

    def _returned(self, name: str, size: int) -> Returned | None:
        box, _, number = name.rpartition(".")
        client = self._boxes[box]
        try:
            if size > MOST_REPLY:
                raise BadParcel(f"it has {size} bytes")
            envelope = Envelope(True, client, int(number), self._session)
            return Returned(name, *self._seals[client].open(envelope, self._store.read(f"server/{name}", size)))
        except FileNotFoundError:
            return None
        except BadParcel as error:
            log.warning("a file in the name of %s is not used: %s", client, error)
            return None

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            if name in self._waiting:
                self._store.remove(self._waiting[name])
                del self._waiting[name]


class Inbox:
    """The owner's end: takes messages in the order of their numbers, and writes one reply for each."""

    def __init__(self, store: SharedFolder, seal: Seal, client: ClientId, guard: OrderGuard, most: int) -> None:
        """A file of more than `most` bytes is removed unread."""
        self._store, self._seal, self._client, self._guard, self._most = store, seal, client, guard, most
        self._box = box_name(client)
        self._replies: list[int] | None = None
        self._ready: dict[int, bytes] = {}
        """Replies that could not be written yet."""
        self._trouble = _Trouble(owners_log)

    def serve(self, idle: float = IDLE, once: bool = False, sleep: Callable[[float], None] = time.sleep) -> None:
        """Answer messages for ever, or `once`: until no message is left. Then a failing mailbox raises `StoreError`."""
        make_deterministic()
        pauses = Backoff(SOON, idle)
        while True:
            try:
                took = self.look()
                self._trouble.over()
            except StoreError as error:
                if once:
                    raise
                took = False
                self._trouble.note(error)
            if took:
                pauses.restart()
            elif once:
                return
            else:
                sleep(pauses.next())

    def look(self) -> bool:
        """Answer the messages that are there; return True if there was one to answer."""
        there, took = self._store.files(f"nodes/{self._box}"), False
        for number in _numbers(there):
            took = self._take(number, there[str(number)]) or took
        return took

    def _take(self, number: int, size: int) -> bool:
        path, answered = f"nodes/{self._box}/{number}", False
        try:
            if not self._guard.has_answered(number):
                self._answer(number, path, size)
                answered = True
        except FileNotFoundError:  # the server has withdrawn it meanwhile
            return False
        except BadParcel as error:
            owners_log.error("the message %d in the mailbox is not used: %s", number, error)
        self._store.remove(path)
        return answered

    def _answer(self, number: int, path: str, size: int) -> None:
        if number not in self._ready:
            if not OVERHEAD <= size <= self._most:
                raise BadParcel(f"it has {size} bytes, and at most {self._most} can be needed here")
            sealed = self._store.read(path, size)
            session = session_of(sealed)
            head, body = self._seal.open(Envelope(False, self._client, number, session), sealed)
            reply = self._guard.answer(number, head, _bounded(body))
            self._ready[number] = self._seal.close(Envelope(True, self._client, number, session), *reply)
        self._store.put(f"server/{self._box}.{number}", self._ready[number])
        self._guard.done(number)
        del self._ready[number]
        self._tidy(number)

    def _tidy(self, number: int) -> None:
        """Remove this client's oldest replies if the server has not taken them."""
        if self._replies is None:
            self._replies = _numbers(name.removeprefix(f"{self._box}.") for name in self._store.files("server"))
        self._replies = [*(one for one in self._replies if one != number), number]
        for old in self._replies[:-LEFT]:
            self._store.remove(f"server/{self._box}.{old}")
        self._replies = self._replies[-LEFT:]


def _numbers(names: Iterable[str]) -> list[int]:
    """Return the names that are message numbers, sorted; other files are ignored."""
    return sorted(int(name) for name in names if NUMBER.fullmatch(name) and int(name) <= HIGHEST)


def _bounded(body: bytes) -> Body:
    def read(most: int) -> bytes:
        if len(body) > most:
            raise BadParcel(f"a body of {len(body)} bytes, at most {most} can be needed here")
        return body

    return read


@dataclass(frozen=True)
class MailboxConnection:
    """A node's mailbox and the keys of both sides. `once`: answer the messages that are there, then end."""

    client: ClientId
    url: str
    seal: Seal
    idle: float = IDLE
    once: bool = False

    @property
    def where(self) -> str:
        return "looking into the mailbox" + (" once" if self.once else "")

    def serve(self, guard: OrderGuard, state: Path, most_weights: int) -> None:
        most = LARGEST_BASE + PER_WEIGHT * most_weights
        Inbox(SharedFolder(self.url), self.seal, self.client, guard, most).serve(self.idle, self.once)
