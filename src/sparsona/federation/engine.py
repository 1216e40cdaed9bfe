"""What the server's loop needs of an engine; :mod:`sparsona.engines` holds those that there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Protocol

from sparsona.federation.delivery import ClientMemory
from sparsona.federation.references import ReferenceStore
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.method import ClientId
from sparsona.runs.store import ClientStore


class Engine(Protocol):
    """Runs jobs and yields their outcomes in any order, taking the next job only when it has a worker for it.

    Owns the clients' states.
    """

    store: ClientStore
    references: ReferenceStore

    @property
    def working(self) -> Collection[ClientId]:
        """The clients whose outcomes a later call of :meth:`run` may yield; most engines yield all of them at once."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Run turns; their outcomes in any order."""

    def close(self) -> None:
        """Give back what is held."""


class LocalEngine:
    """What engines on this side of a network share: they own the clients' states and the references."""

    working: frozenset[ClientId] = frozenset()

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.store = ClientStore(partial(ClientMemory.fresh, setup))
        self.references = ReferenceStore()

    def close(self) -> None:
        """Give back what is held."""
        self.store.files.close()
        self.references.files.close()
