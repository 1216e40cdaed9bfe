"""`sparsona node`: the owner's process, and the SuperNode that it looks after."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from sparsona.engines.flower.node import Node, Rules, serve
from sparsona.engines.flower.processes import Child, supernode
from sparsona.errors import InputError
from sparsona.method import ClientId

log = logging.getLogger("sparsona.node")

LEASE = 5.0
"""Seconds between two attempts to join. The SuperLink holds a dead node's place for up to a minute."""


@dataclass(frozen=True)
class Owner:
    """Where a node connects to, by what name and key, and what it allows."""

    client: ClientId
    superlink: str
    data: Path
    state: Path
    ca: Path
    key: Path
    rules: Rules
    device: str = "cpu"
    idle: float = 1.0

    def run(self) -> None:
        """Serve until the process is ended."""
        for path in (self.data, self.ca, self.key):
            if not path.exists():
                raise InputError(f"there is no file {path}: check the path")
        self.state.mkdir(parents=True, exist_ok=True)
        self.state.chmod(0o700)
        state = self.state.resolve()
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
        door = state / "socket"
        threading.Thread(target=self._supervise, args=(state, door), daemon=True).start()
        serve(Node(self.client, self.data.resolve(), state / "runs", self.rules, self.device), door)

    def _supervise(self, state: Path, door: Path) -> None:
        """Keep a SuperNode running: its place may be held for a while after a crash, and the server may be away."""
        home = state / "flower"
        home.mkdir(exist_ok=True)
        while True:
            child: Child = supernode(home, self.superlink, self.ca.resolve(), self.key.resolve(), door, self.idle)
            began = time.monotonic()
            code = child.wait()
            why = f"see {home / 'supernode.log'}" if time.monotonic() - began > LEASE else "its place may still be held"
            log.warning("flower-supernode ended with %d (%s): trying again in %.0f s", code, why, LEASE)
            time.sleep(LEASE)


def _log_to(file: Path) -> None:
    """What the node does and what leaves it, on the screen and in a file that the owner keeps."""
    log.setLevel(logging.INFO)
    for handler in (logging.StreamHandler(), logging.FileHandler(file)):
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        log.addHandler(handler)
