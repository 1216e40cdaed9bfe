"""The plain engine: every client's turn in this process, one after another. The reference for all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparsona.client import Job, Outcome, Setup, Worker
from sparsona.engines import ENGINES
from sparsona.store import ClientStore


@ENGINES.add
class InProcess:
    """One worker, no parallelism, whatever number is asked for."""

    def __init__(self, setup: Setup, workers: int = 1) -> None:
        self.store = ClientStore(setup.method, setup.task)
        self._worker = Worker(setup)

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            state, outcome = self._worker.run(job, self.store.get(job.client))
            if job.kind == "fit":
                self.store.put(job.client, state)
            yield outcome

    def close(self) -> None:
        """Nothing is held open."""
