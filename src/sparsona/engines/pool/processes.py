"""The worker processes of the pool: started, watched, replaced when they die, dismissed."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections import deque
from contextlib import ExitStack
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from sparsona.engines.pool.loop import DEPTH, Arm, Failure, Leave, Letter, Order, Ready, Report
from sparsona.engines.pool.shared import Block, Sealed, Slot
from sparsona.errors import SparsonaError

T = TypeVar("T")
BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from sparsona.engines.pool.loop import main; main(*map(int, sys.argv[2:]))"
)
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # Tensors of megabytes come and go with every batch: glibc shall keep their memory instead of asking for new pages.
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
}
PATIENCE = 3
"""How often workers may die at the same task before it is given up."""


class Died(Exception):
    """The process at the other end is gone."""


class WorkerProcess(Generic[T]):
    """One worker process, the line to it, and what it was asked to do and has not answered yet."""

    def __init__(self) -> None:
        with ExitStack() as opened, ExitStack() as passed:
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            passed.callback(theirs.close)
            watched, self._lifeline = os.pipe()
            opened.callback(os.close, self._lifeline)
            passed.callback(os.close, watched)
            slots = [Slot() for _ in range(2 * DEPTH)]
            for slot in slots:
                opened.callback(slot.close)
            self._orders, self._reports = slots[:DEPTH], slots[DEPTH:]
            handles = [theirs.fileno(), watched, *(slot.handle for slot in slots)]
            paths = json.dumps([str(place) for place in sys.path])
            # A process group of its own: Ctrl-C in the terminal is the server's business.
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, paths, *map(str, handles)],
                pass_fds=handles,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ENVIRONMENT},
                process_group=0,
            )
            opened.pop_all()
        self.line: Connection[Any, Any] = Connection(ours.detach())
        self.tasks: deque[T] = deque()
        self.arming = 0
        self._used: deque[int] = deque()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def idle(self) -> bool:
        return not self.tasks and not self.arming

    def arm(self, sealed: Sealed, block: Block) -> None:
        self._send(Arm(sealed))
        try:
            reduction.send_handle(self.line, block.handle, self.pid)
        except OSError:
            raise Died from None
        self.arming += 1

    def give(self, order: Order, task: T) -> None:
        slot = next(number for number in range(DEPTH) if number not in self._used)
        self.tasks.append(task)
        self._used.append(slot)
        self._send(Letter(slot, self._orders[slot].put(order)))

    def _send(self, message: Any) -> None:
        try:
            self.line.send(message)
        except OSError:
            raise Died from None

    def receive(self) -> Report | Ready | Failure:
        """What the worker has to say; a report, and an error in a turn, answer the oldest order."""
        try:
            message: Letter | Ready | Failure = self.line.recv()
        except (EOFError, OSError):
            raise Died from None
        if not self.arming:
            self._used.popleft()
        if not isinstance(message, Letter):
            return message
        report: Report = self._reports[message.slot].get(message.length)
        return report

    def end(self, kill: bool = True) -> str:
        """Close the line, let the process end or make it, and say how it ended."""
        if not kill:
            try:
                self.line.send(Leave())
            except OSError:
                kill = True
        if kill:
            self._process.kill()
        self.line.close()
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        os.close(self._lifeline)
        for slot in (*self._orders, *self._reports):
            slot.close()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


FILES = 12
"""File descriptors that a worker takes: its line, its lifeline, and two for each slot."""


def _allow_files(more: int) -> None:
    """Have room for so many open files beside the usual ones, as far as the system lets us: with a worker on each of a
    hundred cores, the usual 1,024 are not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 512 + more
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


class WorkerPool(Generic[T]):
    """Worker processes that serve one set-up after another.

    A pool has its own. One that is given to several pools in turn saves each the seconds that it takes to start:

    >>> with WorkerPool(2) as crew:
    ...     len(crew.members)
    0
    """

    def __init__(self, size: int) -> None:
        self.size = size
        _allow_files(FILES * size)
        self.members: list[WorkerProcess[T]] = []
        self._sealed: tuple[Sealed, Block] | None = None
        self._stint: object = None
        self._failures = 0

    def __enter__(self) -> WorkerPool[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def arm(self, sealed: Sealed, block: Block) -> None:
        """Have everyone take up a set-up; who joins later does the same."""
        self.begin(None)
        self._sealed = sealed, block
        self._failures = 0
        for member in list(self.members):
            try:
                member.arm(sealed, block)
            except Died:
                self.dismiss(member)
        self.fill()

    def has(self, block: Block) -> bool:
        """Whether this is the block of the set-up that was taken up last."""
        return self._sealed is not None and self._sealed[1] is block

    def begin(self, stint: object) -> None:
        """Work for `stint` from now on; whatever is under way for another is given up."""
        self._stint = stint
        for member in list(self.members):
            if member.tasks:
                self.dismiss(member)

    def works_for(self, stint: object) -> bool:
        return self._stint is stint

    def fill(self) -> None:
        """Start processes until the crew is complete."""
        while len(self.members) < self.size:
            member: WorkerProcess[T] = WorkerProcess()
            self.members.append(member)
            if self._sealed is not None:
                try:
                    member.arm(*self._sealed)
                except Died:
                    self.bury(member)

    def bury(self, member: WorkerProcess[T]) -> str:
        """Remove a member that has died and say how. Where nobody lives long enough to get ready, give up."""
        self.members.remove(member)
        how = member.end()
        if member.arming:
            self._failures += 1
            if self._failures >= PATIENCE:
                raise SparsonaError(f"worker processes die as they start ({how}): choose --engine inprocess")
        return how

    def dismiss(self, member: WorkerProcess[T]) -> None:
        """End a member whose work is not wanted any more."""
        self.members.remove(member)
        member.end()

    def heard(self, timeout: float | None = None) -> list[WorkerProcess[T]]:
        """Wait until somebody has something to say, or has died."""
        ready = wait([member.line for member in self.members], timeout)
        return [member for member in self.members if member.line in ready]

    def is_ready(self, member: WorkerProcess[T]) -> None:
        member.arming -= 1
        self._failures = 0

    def close(self) -> None:
        self._stint = self._sealed = None
        for member in self.members:
            member.end(kill=not member.idle)
        self.members.clear()
