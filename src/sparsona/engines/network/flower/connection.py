"""A node's line to a SuperLink: the supervised SuperNode, and the socket to the owner's process."""

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparsona.engines.network.carrier import OrderGuard, checked_number
from sparsona.engines.network.flower.checks import clock_problem
from sparsona.engines.network.flower.processes import SUPERNODE_LOG, Child, supernode
from sparsona.engines.network.flower.started.sparsona_records import NUMBER, BadParcel, Incoming, write
from sparsona.errors import InputError, StoreError
from sparsona.training.determinism import make_deterministic

log = logging.getLogger("sparsona.node")

LEASE = 5.0  # Seconds between two attempts to join. The SuperLink holds a dead node's place for up to half a minute.
MEMORY, PER_WEIGHT = 2**30, 16
"""Bytes that the SuperNode takes at most: a base, and more per allowed weight for copies of messages."""
LOOK = 0.5  # seconds between two looks into the SuperNode's log, and between two checks whether the node can go on


def serve(guard: OrderGuard, path: Path, check: Callable[[], None] = lambda: None) -> None:
    """Answer messages one by one on a socket that only the owner can open, until `check` raises an error."""
    make_deterministic()
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(str(path))
        except OSError as error:
            raise InputError(f"cannot listen at {path} ({error}): choose a --state with a shorter path") from None
        path.chmod(0o600)
        listener.listen()
        listener.settimeout(LOOK)
        while True:
            check()
            try:
                stream, _ = listener.accept()
            except TimeoutError:
                continue
            with stream:
                _serve_one(guard, stream)


def _serve_one(guard: OrderGuard, stream: socket.socket) -> None:
    try:
        asked = Incoming(stream)
        number = checked_number(asked.head.pop(NUMBER, None))
        reply = guard.answer(number, asked.head, asked.body)
        asked.drop()
        guard.done(number)
    except BadParcel as error:
        log.error("a message is refused: %s", error)
        reply = {"kind": "error", "why": str(error)}, b""
    except StoreError as error:
        log.error("%s; the message is asked for again", error)
        return
    except OSError:
        log.warning("a message broke off")
        return
    try:
        write(stream, *reply)
    except OSError:
        log.warning("the server no longer waits for this reply; it is kept in case the server asks again")


@dataclass(frozen=True)
class FlowerConnection:
    """A SuperLink, its certificate, and the node's key; `idle` is the longest pause between requests in seconds."""

    superlink: str
    ca: Path
    key: Path
    idle: float

    @property
    def where(self) -> str:
        return f"connecting to {self.superlink}"

    def serve(self, guard: OrderGuard, state: Path, most_weights: int) -> None:
        home, listener = state / "flower", state / "socket"
        home.mkdir(exist_ok=True)
        ca, key = self.ca.resolve(), self.key.resolve()

        def begin() -> Child:
            return supernode(home, self.superlink, ca, key, listener, self.idle, MEMORY + PER_WEIGHT * most_weights)

        supervisor = Supervisor(begin, home / SUPERNODE_LOG, lambda: clock_problem(self.superlink, ca))
        try:
            supervisor.start()
            serve(guard, listener, supervisor.check)
        finally:
            supervisor.close()


class Supervisor:
    """Keeps a SuperNode running, watched by a thread, and logs in plain words whether it is connected.

    The SuperNode is started again if its place is still held after a crash, or if the server is away. With wrong
    settings it is not: `problem` then names the setting, and :meth:`check` raises it.
    """

    def __init__(self, begin: Callable[[], Child], logs: Path, clock: Callable[[], str] = lambda: "") -> None:
        """`clock` returns how far the clocks of this machine and the server differ; empty if they agree."""
        self._begin, self._logs, self._clock = begin, logs, clock
        self._closing, self._changing = threading.Event(), threading.Lock()
        self._child: Child | None = None
        self.problem = ""

    def start(self) -> None:
        threading.Thread(target=self._keep, daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        with self._changing:
            if self._child is not None:
                self._child.stop()

    def check(self) -> None:
        """Raise the problem with the SuperNode's settings, if there is one."""
        if self.problem:
            raise InputError(self.problem)

    def _keep(self) -> None:
        while True:
            with self._changing:
                if self._closing.is_set():
                    return
                at = self._logs.stat().st_size if self._logs.exists() else 0
                child = self._child = self._begin()
            self._watch(child, at)
            if self._closing.is_set():
                return
            if self.problem:
                child.stop()
                return
            log.warning("flower-supernode ended (%s): trying again in %.0f s", self._logs, LEASE)
            self._closing.wait(LEASE)

    def _watch(self, child: Child, at: int) -> None:
        """Log every change in the SuperNode's log, until it ends or cannot continue."""
        told = ""
        while True:
            ended = child.ended is not None
            with self._logs.open("rb") as file:
                file.seek(at)
                data = file.read()
            data = data if ended else data[: data.rfind(b"\n") + 1]
            at += len(data)
            text = data.decode(errors="replace")
            self.problem = plain_words(text, WRONG)
            if self.problem:
                return
            meaning = plain_words(text)
            if meaning and meaning != told:
                log.info("%s", meaning)
                told = meaning
                if meaning == NOT_LET_IN and (problem := self._clock()):
                    log.warning("%s", problem)
            if ended or self._closing.wait(LOOK):
                return


NOT_LET_IN = (
    "the server does not let this node in: its key is not registered, or its place is still held after a crash (up to "
    "half a minute)"
)
MEANINGS = {
    "SuperNode ID": "connected to the server",
    "CERTIFICATE_VERIFY_FAILED": "refused to connect: the server has no certificate of --ca for this host",
    "certificate has expired": "refused to connect: the server's certificate has expired, or this machine's clock is "
    "wrong; the organiser makes new ones with sparsona deploy keys",
    "certificate is not yet valid": "refused to connect: the server's certificate is not valid yet; set this machine's "
    "clock",
    "Failed to activate SuperNode": NOT_LET_IN,
    "the server refuses this node's signature": NOT_LET_IN,
    "the executor has ended": "the process that hands over the server's messages has ended; it is started again",
    "Connection attempt failed": "the server is not reached",
}
"""Strings in a SuperNode's log, and their meaning."""
WRONG = {
    "Exit Code: 302": "Flower cannot read the private key: give --key one that sparsona deploy keys wrote",
    "Exit Code: 600": "Flower cannot read the address of the server: give --superlink HOST:PORT",
    "Exit Code: 603": "Flower cannot use the certificate: give --ca the organiser's ca.crt",
    "Exit Code: 604": "Flower cannot read a file that it needs: check the paths of --ca and --key",
    "does not contain a certificate": "Flower finds no certificate: give --ca the organiser's ca.crt",
}
"""Strings in a SuperNode's log that mean wrong settings: another attempt would fail, too."""


def plain_words(text: str, meanings: Mapping[str, str] = MEANINGS) -> str:
    """Return the newest known meaning in a SuperNode's log; empty if there is none.

    >>> plain_words("INFO: Starting\\nINFO: SuperNode ID: 7\\n")
    'connected to the server'
    """
    at = {text.rfind(sign): meaning for sign, meaning in meanings.items() if sign in text}
    return at[max(at)] if at else ""
