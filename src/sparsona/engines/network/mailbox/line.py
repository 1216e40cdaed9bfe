"""A node's line through a mailbox."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparsona.engines.network.carrier import OrderGuard
from sparsona.engines.network.mailbox.boxes import Inbox
from sparsona.engines.network.mailbox.seal import Seal
from sparsona.engines.network.mailbox.store import SharedFolder
from sparsona.method import ClientId

LEAST, PER_WEIGHT = 2**26, 16
"""Largest message in bytes: a base, and more per weight that the owner allows."""


@dataclass(frozen=True)
class MailboxLine:
    """A mailbox and the keys of both sides. `once`: answer the messages that are there, then end."""

    client: ClientId
    url: str
    seal: Seal
    idle: float
    once: bool = False

    @property
    def where(self) -> str:
        return "looking into the mailbox" + (" once" if self.once else "")

    def serve(self, guard: OrderGuard, state: Path, most_weights: int) -> None:
        inbox = Inbox(SharedFolder(self.url), self.seal, self.client, guard, LEAST + PER_WEIGHT * most_weights)
        inbox.serve(self.idle, self.once)
