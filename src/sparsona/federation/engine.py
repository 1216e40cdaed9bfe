"""The interface between the server's loop and an engine; :mod:`sparsona.engines` has the engines."""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Protocol

from sparsona.federation.delivery import ClientMemory
from sparsona.federation.references import ReferenceStore
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.method import ClientId
from sparsona.runs.store import ClientStore
from sparsona.wire.known import KnownFrames


class Engine(Protocol):
    """Runs jobs, which it takes when a worker is free, and owns the clients' states."""

    store: ClientStore
    references: ReferenceStore
    known: KnownFrames | None  # the frames whose messages need no decoding; None if clients work in other processes

    @property
    def working(self) -> Collection[ClientId]:
        """Return the clients whose outcomes a later call of :meth:`run` may yield; none for most engines."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Run turns and yield their outcomes in any order."""

    def close(self) -> None:
        """Release files and processes."""


class LocalEngine:
    """An engine on this side of a network: it owns the clients' states and the references."""

    working: frozenset[ClientId] = frozenset()
    known: KnownFrames | None = None

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.store = ClientStore(partial(ClientMemory.fresh, setup))
        self.references = ReferenceStore()

    def close(self) -> None:
        """Give back what is held."""
        self.store.files.close()
        self.references.files.close()
