"""The plain engine: every client's turn in this process, one after another. The reference for all others."""

from collections.abc import Iterable, Iterator

from sparsona.engines import ENGINES
from sparsona.engines.child import keep_freed_memory
from sparsona.federation.engine import LocalEngine
from sparsona.federation.resources import Resources
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome, Worker
from sparsona.wire.known import KnownFrames


class InProcess(LocalEngine):
    """One worker, no parallelism."""

    def __init__(self, setup: Setup) -> None:
        keep_freed_memory()
        super().__init__(setup)
        self.known = None if setup.packing == "plain" else KnownFrames(setup.limit())
        self._worker = Worker(setup, self.references, self.known)

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Run the turns one after another."""
        for job in jobs:
            before = self.store.get(job.client)
            memory, outcome = self._worker.run(job, before)
            if job.writes and memory.worth_writing(before):
                self.store.put(job.client, memory)
            yield outcome


@ENGINES.add
def engine(setup: Setup, resources: Resources) -> InProcess:
    """One worker, no parallelism, whatever number is asked for."""
    return InProcess(setup)
