"""The worker processes of the pool: start, configure, replace and stop them."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from sparsona.engines.child import ChildProcess, check_system
from sparsona.engines.pool.loop import Configure, Configured, InSlot, Request, Stop
from sparsona.engines.pool.shared import SharedBlock, SharedSetup, Slot
from sparsona.engines.turns import DEPTH, MAX_DEATHS, Failure, Response
from sparsona.errors import SparsonaError

T = TypeVar("T")


class WorkerDied(Exception):
    """The worker process has ended."""


class WorkerProcess(Generic[T]):
    """One worker process, the connection to it, and its unanswered groups of jobs.

    `configuring` counts the sent set-ups that it has not confirmed yet.
    """

    def __init__(self) -> None:
        with ExitStack() as opened:
            slots = [Slot() for _ in range(2 * DEPTH)]
            for slot in slots:
                opened.callback(slot.close)
            self._child = ChildProcess("sparsona.engines.pool.loop", [slot.handle for slot in slots])
            opened.pop_all()
        self._requests, self._responses = slots[:DEPTH], slots[DEPTH:]
        self.groups: deque[T] = deque()
        self.configuring = 0
        self._used: deque[int] = deque()

    @property
    def connection(self) -> Connection[Any, Any]:
        """Return the connection for messages."""
        return self._child.connection

    @property
    def pid(self) -> int:
        """Return the process ID."""
        return self._child.pid

    @property
    def idle(self) -> bool:
        """True if the process waits for work."""
        return not self.groups and not self.configuring

    def configure(self, shared: SharedSetup, block: SharedBlock) -> None:
        """Send the set-up to the process."""
        self._send(Configure(shared))
        try:
            reduction.send_handle(self.connection, block.handle, self.pid)
        except OSError:
            raise WorkerDied from None
        self.configuring += 1

    def submit(self, request: Request, group: T) -> None:
        """Send turns to the process."""
        slot = next(number for number in range(DEPTH) if number not in self._used)
        self.groups.append(group)
        self._used.append(slot)
        self._send(InSlot(slot, self._requests[slot].put(request)))

    def _send(self, message: Any) -> None:
        try:
            self.connection.send(message)
        except OSError:
            raise WorkerDied from None

    def receive(self) -> Response | Configured | Failure:
        """Return the worker's next message. A response, or an error in a turn, answers the oldest request."""
        try:
            message: InSlot | Configured | Failure = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerDied from None
        if not self.configuring:
            self._used.popleft()
        if not isinstance(message, InSlot):
            return message
        response: Response = self._responses[message.slot].get(message.lengths)
        return response

    def end(self, kill: bool = True) -> str:
        """Close the connection, let the process end or kill it, and return how it ended."""
        if not kill:
            try:
                self.connection.send(Stop())
            except OSError:
                kill = True
        how = self._child.end(kill)
        for slot in (*self._requests, *self._responses):
            slot.close()
        return how


FILES = 12
"""File descriptors per worker: its connection, the pipe that ends with the server, and two per slot."""


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


class WorkerPool(Generic[T]):
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
        self.processes: list[WorkerProcess[T]] = []
        self._setup: tuple[SharedSetup, SharedBlock] | None = None
        self._caller: object = None
        self._failures = 0

    def __enter__(self) -> WorkerPool[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def configure(self, shared: SharedSetup, block: SharedBlock) -> None:
        """Send the set-up to every process, also to those that start later."""
        self.assign(None)
        self._setup = shared, block
        self._failures = 0
        for process in list(self.processes):
            try:
                process.configure(shared, block)
            except WorkerDied:
                self.stop(process)
        self.start_missing()

    def is_configured_with(self, block: SharedBlock) -> bool:
        """True if `block` belongs to the current set-up."""
        return self._setup is not None and self._setup[1] is block

    def assign(self, caller: object) -> None:
        """Work for `caller` from now on; stop the processes that still work for another caller."""
        self._caller = caller
        for process in list(self.processes):
            if process.groups:
                self.stop(process)

    def is_assigned(self, caller: object) -> bool:
        """True if the workers are assigned to `caller`."""
        return self._caller is caller

    def start_missing(self) -> None:
        """Start processes until there are `size`."""
        while len(self.processes) < self.size:
            process: WorkerProcess[T] = WorkerProcess()
            self.processes.append(process)
            if self._setup is not None:
                try:
                    process.configure(*self._setup)
                except WorkerDied:
                    self.remove_dead(process)

    def remove_dead(self, process: WorkerProcess[T]) -> str:
        """Remove a dead process and return how it ended. Give up if processes keep dying before they are configured."""
        self.processes.remove(process)
        how = process.end()
        if process.configuring:
            self._failures += 1
            if self._failures >= MAX_DEATHS:
                raise SparsonaError(f"worker processes die as they start ({how}): choose --engine inprocess")
        return how

    def stop(self, process: WorkerProcess[T]) -> None:
        """End a process whose work is not needed any more."""
        self.processes.remove(process)
        process.end()

    def wait_readable(self, timeout: float | None = None) -> list[WorkerProcess[T]]:
        """Wait until processes have sent something or have died; return them."""
        ready = wait([process.connection for process in self.processes], timeout)
        return [process for process in self.processes if process.connection in ready]

    def mark_configured(self, process: WorkerProcess[T]) -> None:
        """Note that a process has confirmed a set-up."""
        process.configuring -= 1
        self._failures = 0

    def close(self) -> None:
        """End all processes."""
        self._caller = self._setup = None
        for process in self.processes:
            process.end(kill=not process.idle)
        self.processes.clear()
