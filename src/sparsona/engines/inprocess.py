"""The plain engine: every client's turn in this process, one after another. The reference for all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from sparsona.engines import ENGINES
from sparsona.engines.memory import keep_freed_memory
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.references import ReferenceStore
from sparsona.federation.resources import Resources
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome, Worker
from sparsona.method import ClientId
from sparsona.runs.store import ClientStore


class InProcess:
    """One worker, no parallelism."""

    working: frozenset[ClientId] = frozenset()

    def __init__(self, setup: Setup) -> None:
        keep_freed_memory()
        self.store = ClientStore(partial(ClientMemory.fresh, setup))
        self.references = ReferenceStore()
        self._worker = Worker(setup, self.references)

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Run the turns one after another."""
        for job in jobs:
            before = self.store.get(job.client)
            memory, outcome = self._worker.run(job, before)
            if job.writes and memory.worth_writing(before):
                self.store.put(job.client, memory)
            yield outcome

    def close(self) -> None:
        """Give back what is held."""
        self.store.files.close()
        self.references.files.close()


@ENGINES.add
def engine(setup: Setup, resources: Resources) -> InProcess:
    """One worker, no parallelism, whatever number is asked for."""
    return InProcess(setup)
