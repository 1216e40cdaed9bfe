"""The engines: what runs the clients' turns. All share the server's loop in :mod:`sparsona.federation.rounds`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from sparsona.federation.references import ReferenceStore
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.method import ClientId
from sparsona.registry import Registry
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

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]: ...

    def close(self) -> None: ...


ENGINES: Registry[Callable[[Setup, int], Engine]] = Registry("engine", __name__)
"""An engine is made from the set-up and the number of workers, 0 meaning one a core."""
