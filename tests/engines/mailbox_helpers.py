"""A mailbox whose two ends are in one process: before the server looks, all nodes have looked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sparsona.engines.network.carrier import Answer, Answering, Body, OrderGuard, Returned
from sparsona.engines.network.flower.started.sparsona_records import Head
from sparsona.engines.network.keys import make_node_key
from sparsona.engines.network.mailbox.boxes import Inbox, MailboxCarrier
from sparsona.engines.network.mailbox.seal import Seal
from sparsona.engines.network.mailbox.store import SharedFolder
from sparsona.errors import StoreError
from sparsona.runs.names import file_stem


class Echo:
    """A node that turns bodies round, and notes the orders that it carries out."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def answer(self, head: Head, body: Body) -> Answer:
        if head["kind"] == "ping":
            return {"kind": "pong"}, b""
        self.done.append(head["order"])
        return {"kind": "turn", "order": head["order"]}, body(10**6)[::-1]


def seals(folder: Path, clients: Sequence[str]) -> dict[str, tuple[Seal, Seal]]:
    """For each client the organiser's seal and its own."""
    mine = make_node_key(folder / "organiser", "organiser")
    theirs = {client: make_node_key(folder / "owners", client) for client in clients}
    public = {key: Path(f"{key}.pub") for key in (mine, *theirs.values())}
    return {client: (Seal(mine, public[key]), Seal(key, public[mine])) for client, key in theirs.items()}


class Together(MailboxCarrier):
    """The organiser's end, and the inboxes of all nodes. `meddle` is called before each side looks."""

    def __init__(self, url: str, nodes: Mapping[str, Answering], folder: Path) -> None:
        keys = seals(folder / "keys", sorted(nodes))
        super().__init__(SharedFolder(url), {client: pair[0] for client, pair in keys.items()}, idle=0.01)
        self.silence = 0.05
        self.meddle: Callable[[], None] = lambda: None
        self.inboxes = {
            client: Inbox(
                SharedFolder(url),
                keys[client][1],
                client,
                OrderGuard(node, folder / f"{file_stem(client)}.numbers"),
                10**7,
            )
            for client, node in nodes.items()
        }

    def pull(self, names: Sequence[str]) -> list[Returned]:
        self.meddle()
        for inbox in self.inboxes.values():
            try:
                inbox.look()
            except StoreError:
                continue
        self.meddle()
        return super().pull(names)
