"""The parallel engine: a worker process per core, each with one torch thread and one module.

Results are bit for bit those of `inprocess`, for any number of workers. Samples are in memory twice, for any number of
workers: in the server, and in the block that all workers map. The server owns the clients' states. A state travels to a
worker with each turn and back with its outcome, through memory that both map. So a worker that dies takes no state
along, and only evicted states and checkpoints are files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from multiprocessing import reduction
from multiprocessing.connection import wait
from typing import Any

from sparsona.engines import ENGINES
from sparsona.engines.child import ChildProcess, check_system, keep_freed_memory
from sparsona.engines.pool import loop
from sparsona.engines.pool.loop import Request, SharedBlock, SharedSetup, Slot, SlotNotice, share_setup
from sparsona.engines.turns import DEPTH, MAX_DEATHS, Failure, JobGroup, Pace, Response, TurnQueue, WorkerEngine
from sparsona.errors import InputError, SparsonaError
from sparsona.federation.resources import Resources
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome
from sparsona.system import cores


class WorkerDied(Exception):
    """The worker process has ended."""


class WorkerProcess(ChildProcess):
    """One worker process, its unanswered groups of jobs, and the number of set-ups it has not confirmed yet."""

    def __init__(self) -> None:
        with ExitStack() as opened:
            slots = [Slot() for _ in range(2 * DEPTH)]
            for slot in slots:
                opened.callback(slot.close)
            super().__init__("sparsona.engines.pool.loop", [slot.handle for slot in slots])
            opened.pop_all()
        self._requests, self._responses = slots[:DEPTH], slots[DEPTH:]
        self.groups: deque[JobGroup] = deque()
        self.configuring = 0
        self._used: deque[int] = deque()

    def configure(self, shared: SharedSetup, block: SharedBlock) -> None:
        """Send the set-up to the process."""
        self._send(shared)
        try:
            reduction.send_handle(self.connection, block.handle, self.pid)
        except OSError:
            raise WorkerDied from None
        self.configuring += 1

    def submit(self, request: Request, group: JobGroup) -> None:
        """Send turns to the process."""
        slot = next(number for number in range(DEPTH) if number not in self._used)
        self.groups.append(group)
        self._used.append(slot)
        self._send(SlotNotice(slot, self._requests[slot].put(request)))

    def _send(self, message: Any) -> None:
        try:
            self.connection.send(message)
        except OSError:
            raise WorkerDied from None

    def receive(self) -> Response | Failure | None:
        """Return the answer to the oldest request, or to a set-up: None once it is in use."""
        try:
            message: SlotNotice | Failure | None = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerDied from None
        if not self.configuring:
            self._used.popleft()
        if not isinstance(message, SlotNotice):
            return message
        response: Response = self._responses[message.slot].get(message.lengths)
        return response

    def end(self, kill: bool = True) -> str:
        """Close the connection, let the process end or kill it, and return how it ended."""
        if not kill:
            try:
                self.connection.send(None)
            except OSError:
                kill = True
        how = super().end(kill)
        for slot in (*self._requests, *self._responses):
            slot.close()
        return how


FILES = 12  # file descriptors per worker: its connection, the pipe that ends with the server, and two per slot


def _allow_files(more: int) -> None:
    """Raise the limit of open files by `more`, as far as the system allows.

    With a worker on each of a hundred cores, the usual 1,024 are not enough.
    """
    import resource  # POSIX only, as these processes are

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 512 + more
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


class WorkerPool:
    """Worker processes that serve one set-up after another.

    Each engine has its own pool. A pool that is given to several engines in turn saves the seconds of starting workers:

    >>> with WorkerPool(2) as workers:
    ...     len(workers.processes)
    0
    """

    def __init__(self, size: int) -> None:
        self.size = size
        check_system()
        _allow_files(FILES * size)
        self.processes: list[WorkerProcess] = []
        self.setup: tuple[SharedSetup, SharedBlock] | None = None
        self.caller: object = None
        """The call of a pool for which the processes work."""
        self.failures = 0

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def configure(self, shared: SharedSetup, block: SharedBlock) -> None:
        """Send the set-up to every process, also to those that start later."""
        self.assign(None)
        self.setup = shared, block
        self.failures = 0
        for process in list(self.processes):
            try:
                process.configure(shared, block)
            except WorkerDied:
                self.stop(process)
        self.start_missing()

    def assign(self, caller: object) -> None:
        """Work for `caller` from now on; stop the processes that still work for another caller."""
        self.caller = caller
        for process in list(self.processes):
            if process.groups:
                self.stop(process)

    def start_missing(self) -> None:
        """Start processes until there are `size`."""
        while len(self.processes) < self.size:
            process = WorkerProcess()
            self.processes.append(process)
            if self.setup is not None:
                try:
                    process.configure(*self.setup)
                except WorkerDied:
                    self.remove_dead(process)

    def remove_dead(self, process: WorkerProcess) -> str:
        """Remove a dead process and return how it ended. Give up if processes keep dying before they are configured."""
        self.processes.remove(process)
        how = process.end()
        if process.configuring:
            self.failures += 1
            if self.failures >= MAX_DEATHS:
                raise SparsonaError(f"worker processes die as they start ({how}): choose --engine inprocess")
        return how

    def stop(self, process: WorkerProcess) -> None:
        """End a process whose work is not needed any more."""
        self.processes.remove(process)
        process.end()

    def wait_readable(self) -> list[WorkerProcess]:
        """Wait until processes have sent something or have died; return them."""
        ready = wait([process.connection for process in self.processes])
        return [process for process in self.processes if process.connection in ready]

    def close(self) -> None:
        """End all processes."""
        self.caller = self.setup = None
        for process in self.processes:
            process.end(kill=bool(process.groups or process.configuring))
        self.processes.clear()


WORTHWHILE, MOST = 0.002, 16  # seconds of work per request to a worker, and the largest number of turns per request


class Pool(WorkerEngine):
    """Runs turns on many workers. A given `worker_pool` is used, and left running when this engine closes."""

    def __init__(self, setup: Setup, workers: int = 0, worker_pool: WorkerPool | None = None) -> None:
        if loop.INSIDE:
            raise InputError(
                "every worker process imports your script, and it starts a run: put the run under "
                "`if __name__ == '__main__':`, or choose --engine inprocess"
            )
        keep_freed_memory()
        super().__init__(setup, Pace(WORTHWHILE, MOST))
        self._owns_workers = worker_pool is None
        self._size = min(workers or cores(), max(1, len(setup.federation.splits)))
        self._workers = WorkerPool(self._size) if worker_pool is None else worker_pool
        shared, self._block = share_setup(setup)
        try:
            self._workers.configure(shared, self._block)
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> list[WorkerProcess]:
        """Return the worker processes that this engine uses."""
        return self._workers.processes[: self._size]

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Run the turns on the workers; outcomes are yielded in the order of completion."""
        caller = object()
        if self._workers.setup is None or self._workers.setup[1] is not self._block:
            raise SparsonaError("these workers were configured for another pool meanwhile: make a new pool")
        self._workers.assign(caller)
        try:
            yield from self._run(TurnQueue(jobs, self.pace), caller)
        finally:
            if self._workers.caller is caller:
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
            if self._workers.caller is not caller:
                raise SparsonaError("the workers were given other jobs before these were done: take all outcomes first")
            if not (queue or any(process.groups for process in self.processes)):
                return
            outcomes = [o for process in self._workers.wait_readable() for o in self._receive(process, queue)]

    def _submit(self, process: WorkerProcess, group: JobGroup, queue: TurnQueue) -> bool:
        """Send some turns to a process; return False if it has died."""
        references = tuple(map(self.references.held, group.references))
        scratch = tuple(place for files in (self.store.files, self.references.files) if (place := files.scratch))
        try:
            process.submit(Request(group.jobs, self.memories(group), references, scratch), group)
        except WorkerDied:
            queue.repeat_lost(process.groups, "a worker process", self._workers.remove_dead(process))
            return False
        return True

    def _receive(self, process: WorkerProcess, queue: TurnQueue) -> Iterator[Outcome]:
        try:
            message = process.receive()
        except WorkerDied:
            queue.repeat_lost(process.groups, "a worker process", self._workers.remove_dead(process))
            return
        if message is None:
            process.configuring -= 1
            self._workers.failures = 0
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
