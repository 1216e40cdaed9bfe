"""`sparsona node`: the owner's process, connected by Flower or through a mailbox."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sparsona.engines.network.carrier import OrderGuard
from sparsona.engines.network.consent import Consent, Terms
from sparsona.engines.network.node import CONSENT, Node
from sparsona.engines.network.own_data import AS_AGREED, OwnFormat
from sparsona.engines.network.rules import Rules
from sparsona.errors import InputError
from sparsona.files import alone
from sparsona.method import ClientId
from sparsona.terminal import LineFormatter

log = logging.getLogger("sparsona.node")

RUNS, NUMBERS = "runs", "answered.json"


class Connection(Protocol):
    """A node's connection to the server: by Flower, or through a mailbox."""

    @property
    def where(self) -> str:
        """Return the connection in words, for the owner."""

    def serve(self, guard: OrderGuard, state: Path, most_weights: int) -> None:
        """Answer messages through the guard until the process is ended. `state` is the node's own folder."""


@dataclass(frozen=True)
class Owner:
    """A node: its connection to the server, its rules, and the format of its file."""

    client: ClientId
    connection: Connection
    data: Path
    state: Path
    rules: Rules
    device: str = "cpu"
    written: OwnFormat = AS_AGREED
    terms: Terms = field(default_factory=Terms)
    base: str = ""
    """The owner's file of frozen weights, if any."""

    def run(self) -> None:
        """Serve until the process is ended."""
        for path in (self.data, *([Path(self.base)] if self.base else [])):
            if not path.exists():
                raise InputError(f"there is no file {path}: check the path")
        self.state.mkdir(parents=True, exist_ok=True)
        self.state.chmod(0o700)
        state = self.state.resolve()
        with alone(state / "lock", f"another sparsona node uses {state}: stop it, or choose another --state"):
            self._run(state)

    def _run(self, state: Path) -> None:
        _log_to(state / "node.log")
        log.info(
            "%s: %s; data %s; methods %s; at most %d epochs a round; test scores are %s; the model is %s",
            self.client,
            self.connection.where,
            self.data,
            ", ".join(self.rules.methods) or "any",
            self.rules.most_epochs,
            "sent" if self.rules.scores else "kept here",
            "sent at the end" if self.rules.model else "kept here",
        )
        if self.rules.epsilon is None:
            log.warning(
                "no privacy budget (--epsilon): an organiser that sends weights of its own making can read single rows "
                "from the replies; take part only if you trust the organiser (docs/privacy.md)"
            )
        data, runs = self.data.resolve(), state / RUNS
        node = Node(self.client, data, runs, self.rules, self.device, self.written, self.terms, self.base)
        self.connection.serve(OrderGuard(node, state / NUMBERS), state, self.rules.most_weights)


def accepted(state: Path, fingerprint: str) -> str:
    """Accept a server's question in the state folder of a node, which may be running; return the question in words."""
    if not (state / RUNS / CONSENT).is_dir():
        raise InputError(f"{state} is not the --state of a node: check the path")
    return Consent(state / RUNS / CONSENT).accept(fingerprint)


class LogFile(logging.FileHandler):
    """A log file; if it cannot be written, standard error says so in one line."""

    def handleError(self, record: logging.LogRecord) -> None:
        print(f"sparsona: cannot write {self.baseFilename}: {sys.exception()}", file=sys.stderr, flush=True)


def _log_to(file: Path) -> None:
    """Log the node's work and everything that leaves it, on the screen and in a file for the owner."""
    log.setLevel(logging.INFO)
    for handler in (logging.StreamHandler(), LogFile(file)):
        handler.setFormatter(LineFormatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        log.addHandler(handler)
