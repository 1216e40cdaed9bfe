"""The parallel engine: a worker process per core, each with one torch thread and one module.

Results are bit for bit those of `inprocess`, for any number of workers. Samples are in memory twice, for any number of
workers: in the server, and in the block that all workers map. The server owns the clients' states. A state travels to a
worker with each turn and back with its outcome, through memory that both map. So a worker that dies takes no state
along, and only evicted states and checkpoints are files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparsona.engines import ENGINES
from sparsona.engines.memory import keep_freed_memory
from sparsona.engines.pool import loop as worker
from sparsona.engines.pool.loop import Configured, Request
from sparsona.engines.pool.processes import WorkerDied, WorkerPool, WorkerProcess
from sparsona.engines.pool.shared import share_setup
from sparsona.engines.turns import Failure, JobGroup, Pace, TurnQueue, WorkerEngine
from sparsona.errors import InputError, SparsonaError
from sparsona.federation.resources import Resources
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.system import cores

WORTHWHILE, MOST = 0.002, 16
"""Seconds of work per request to a worker, and the largest number of turns per request."""


class Pool(WorkerEngine):
    """Runs turns on many workers. A given `worker_pool` is used, and left running when this engine closes."""

    def __init__(self, setup: Setup, workers: int = 0, worker_pool: WorkerPool[JobGroup] | None = None) -> None:
        if worker.INSIDE:
            raise InputError(
                "every worker process imports your script, and it starts a run: put the run under "
                "`if __name__ == '__main__':`, or choose --engine inprocess"
            )
        keep_freed_memory()
        super().__init__(setup, Pace(WORTHWHILE, MOST))
        self._owns_workers = worker_pool is None
        self._size = min(workers or cores(), max(1, len(setup.federation.splits)))
        self._workers: WorkerPool[JobGroup] = WorkerPool(self._size) if worker_pool is None else worker_pool
        shared, self._block = share_setup(setup)
        try:
            self._workers.configure(shared, self._block)
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> list[WorkerProcess[JobGroup]]:
        """Return the worker processes that this engine uses."""
        return self._workers.processes[: self._size]

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Run the turns on the workers; outcomes are yielded in the order of completion."""
        caller = object()
        if not self._workers.is_configured_with(self._block):
            raise SparsonaError("these workers were configured for another pool meanwhile: make a new pool")
        self._workers.assign(caller)
        try:
            yield from self._run(TurnQueue(jobs, self.pace), caller)
        finally:
            if self._workers.is_assigned(caller):
                self._workers.assign(None)

    def _run(self, queue: TurnQueue, caller: object) -> Iterator[Outcome]:
        outcomes: list[Outcome] = []
        while True:
            self._workers.start_missing()
            for process in sorted(self.processes, key=lambda process: len(process.groups)):
                while not process.configuring and len(process.groups) < self.pace.depth and queue:
                    if not self._submit(process, queue.take(), queue):
                        break
            yield from outcomes
            if not self._workers.is_assigned(caller):
                raise SparsonaError("the workers were given other jobs before these were done: take all outcomes first")
            if not (queue or any(process.groups for process in self.processes)):
                return
            outcomes = [o for process in self._workers.wait_readable() for o in self._receive(process, queue)]

    def _submit(self, process: WorkerProcess[JobGroup], group: JobGroup, queue: TurnQueue) -> bool:
        """Send some turns to a process; return False if it has died."""
        references = tuple(map(self.references.held, group.references))
        scratch = tuple(place for files in (self.store.files, self.references.files) if (place := files.scratch))
        try:
            process.submit(Request(group.jobs, self.memories(group), references, scratch), group)
        except WorkerDied:
            queue.repeat_lost(process.groups, "a worker process", self._workers.remove_dead(process))
            return False
        return True

    def _receive(self, process: WorkerProcess[JobGroup], queue: TurnQueue) -> Iterator[Outcome]:
        try:
            message = process.receive()
        except WorkerDied:
            queue.repeat_lost(process.groups, "a worker process", self._workers.remove_dead(process))
            return
        if isinstance(message, Configured):
            self._workers.mark_configured(process)
        elif isinstance(message, Failure) and process.configuring > 1:  # in a set-up that has been replaced
            process.configuring -= 1
        elif isinstance(message, Failure):
            if process.configuring:
                self._workers.stop(process)
            else:
                process.groups.popleft()
            message.raise_again()
        else:
            yield from self.accept(process.groups.popleft(), message)

    def close(self) -> None:
        """End the workers, if this engine owns them, and free the memory."""
        if self._owns_workers:
            self._workers.close()
        self._block.close()
        super().close()


@ENGINES.add
def engine(setup: Setup, resources: Resources) -> Pool:
    """Many workers on this machine, one per core, the same results."""
    return Pool(setup, resources.workers)
