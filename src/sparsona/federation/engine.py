"""What the server's loop needs of an engine; :mod:`sparsona.engines` holds those that there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from sparsona.federation.references import ReferenceStore
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
