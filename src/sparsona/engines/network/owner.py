"""`sparsona node`: the owner's process, and the SuperNode that it looks after."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sparsona.engines.network.carrier import Desk
from sparsona.engines.network.consent import Consent, Terms
from sparsona.engines.network.flower.checks import clock_problem
from sparsona.engines.network.flower.listener import serve
from sparsona.engines.network.flower.processes import SUPERNODE_LOG, Child, supernode
from sparsona.engines.network.node import CONSENT, Node, Rules
from sparsona.engines.network.owned import AS_AGREED, OwnFormat
from sparsona.errors import InputError
from sparsona.method import ClientId
from sparsona.system import take_lock
from sparsona.terminal import LineFormatter

log = logging.getLogger("sparsona.node")

RUNS, NUMBERS = "runs", "answered.json"
LEASE = 5.0
"""Seconds between two attempts to join. The SuperLink holds a dead node's place for up to half a minute."""
LOOK = 0.5
"""Seconds between two looks into the SuperNode's log."""
MEMORY, PER_WEIGHT = 2**30, 16
"""Bytes that the SuperNode takes at most, and for each weight that the owner allows: a few copies of a message."""


@dataclass(frozen=True)
class Owner:
    """Where a node connects to, by what name and key, what it allows, and how its file is written."""

    client: ClientId
    superlink: str
    data: Path
    state: Path
    ca: Path
    key: Path
    rules: Rules
    device: str = "cpu"
    idle: float = 1.0
    written: OwnFormat = AS_AGREED
    terms: Terms = field(default_factory=Terms)

    def run(self) -> None:
        """Serve until the process is ended."""
        for path in (self.data, self.ca, self.key):
            if not path.exists():
                raise InputError(f"there is no file {path}: check the path")
        self.state.mkdir(parents=True, exist_ok=True)
        self.state.chmod(0o700)
        state = self.state.resolve()
        with _alone(state):
            self._run(state)

    def _run(self, state: Path) -> None:
        _log_to(state / "node.log")
        log.info(
            "%s: connecting to %s; data %s; methods %s; at most %d epochs a round; test scores are %s; the model is %s",
            self.client,
            self.superlink,
            self.data,
            ", ".join(self.rules.methods) or "any",
            self.rules.most_epochs,
            "sent" if self.rules.scores else "kept here",
            "sent at the end" if self.rules.model else "kept here",
        )
        home, listener = state / "flower", state / "socket"
        home.mkdir(exist_ok=True)
        ca, key = self.ca.resolve(), self.key.resolve()
        memory = MEMORY + PER_WEIGHT * self.rules.most_weights

        def begin() -> Child:
            return supernode(home, self.superlink, ca, key, listener, self.idle, memory)

        supervisor = Supervisor(begin, home / SUPERNODE_LOG, lambda: clock_problem(self.superlink, ca))
        try:
            supervisor.start()
            data, runs = self.data.resolve(), state / RUNS
            node = Node(self.client, data, runs, self.rules, self.device, self.written, self.terms)
            serve(Desk(node, state / NUMBERS), listener, supervisor.check)
        finally:
            supervisor.close()


def accepted(state: Path, fingerprint: str) -> str:
    """Accept what a server asks, in the state folder of a node that may be running; returns it in words."""
    if not (state / RUNS / CONSENT).is_dir():
        raise InputError(f"{state} is not the --state of a node: check the path")
    return Consent(state / RUNS / CONSENT).accept(fingerprint)


class Supervisor:
    """Keeps a SuperNode running in a thread, and tells the owner in plain words whether it is connected.

    Its place may be held for a while after a crash, and the server may be away: then it is started again. With wrong
    settings it is not: `problem` then says which, and :meth:`check` raises it.
    """

    def __init__(self, begin: Callable[[], Child], logs: Path, clock: Callable[[], str] = lambda: "") -> None:
        """`clock` says in how far the clocks of this machine and the server differ; nothing where they do not."""
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
        """Raise the problem that the SuperNode has with its settings, if it has one."""
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
        """Until the SuperNode ends or cannot go on, say what its log says, once a change."""
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
    "Invalid SuperNode authentication": NOT_LET_IN,
    "the executor has ended": "the process that hands over the server's messages has ended; it is started again",
    "Connection attempt failed": "the server is not reached",
}
"""What is in a SuperNode's log, and what it means."""
WRONG = {
    "Exit Code: 302": "Flower cannot read the private key: give --key one that sparsona deploy keys wrote",
    "Exit Code: 600": "Flower cannot read the address of the server: give --superlink HOST:PORT",
    "Exit Code: 603": "Flower cannot use the certificate: give --ca the organiser's ca.crt",
    "Exit Code: 604": "Flower cannot read a file that it needs: check the paths of --ca and --key",
    "does not contain a certificate": "Flower finds no certificate: give --ca the organiser's ca.crt",
}
"""What is in a SuperNode's log that its settings are the cause of: another attempt would end alike."""


def plain_words(text: str, meanings: Mapping[str, str] = MEANINGS) -> str:
    """What the newest line of a SuperNode's log means that means something; empty where none does.

    >>> plain_words("INFO: Starting\\nINFO: SuperNode ID: 7\\n")
    'connected to the server'
    """
    at = {text.rfind(sign): meaning for sign, meaning in meanings.items() if sign in text}
    return at[max(at)] if at else ""


@contextlib.contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Keep a second node away from a state folder; the lock ends with the process, however it ends."""
    try:
        lock = take_lock(state / "lock")
    except OSError:
        raise InputError(f"another sparsona node uses {state}: stop it, or choose another --state") from None
    with lock:
        yield


def _log_to(file: Path) -> None:
    """What the node does and what leaves it, on the screen and in a file that the owner keeps."""
    log.setLevel(logging.INFO)
    for handler in (logging.StreamHandler(), logging.FileHandler(file)):
        handler.setFormatter(LineFormatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        log.addHandler(handler)
