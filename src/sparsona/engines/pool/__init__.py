"""The parallel engine: a worker process per core, each with one torch thread and one module. Results are the same as
those of `inprocess` to the last bit, for any number of workers.

Samples stand in memory twice, for any number of workers: where the server has loaded them, and in the block that all
workers map. Clients' states are files: a worker reads one when a turn begins and writes it when it ends, since the next
turn may be another worker's. Memory grows with the workers, not with the clients.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sparsona.engines import ENGINES
from sparsona.engines.pool import loop as worker
from sparsona.engines.pool.loop import DEPTH, Failure, Order, Ready, Report
from sparsona.engines.pool.processes import PATIENCE, Died, WorkerPool, WorkerProcess
from sparsona.engines.pool.shared import seal
from sparsona.errors import InputError, SparsonaError
from sparsona.federation.worker import Job, Outcome, Setup, groups
from sparsona.runs.store import ClientStore

log = logging.getLogger(__name__)
SHORT = 0.05
"""Seconds. Where turns are shorter than this, a worker is given the next one before it has finished."""


@dataclass
class Task:
    """Turns that one worker runs, and how many workers have died of them."""

    jobs: tuple[Job, ...]
    deaths: int = field(default=0)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@ENGINES.add
class Pool:
    """Many workers, the same results. `crew` are processes of an earlier pool, to be used again and left running."""

    def __init__(self, setup: Setup, workers: int = 0, crew: WorkerPool[Task] | None = None) -> None:
        if worker.INSIDE:
            raise InputError(
                "every worker process imports your script, and it starts a run: put the run under "
                "`if __name__ == '__main__':`, or choose --engine inprocess"
            )
        self.store = ClientStore(setup.method, setup.task)
        self.peak_rss_mb = 0.0
        self._own = crew is None
        self._size = min(workers or cores(), max(1, len(setup.federation.splits)))
        self._crew: WorkerPool[Task] = WorkerPool(self._size) if crew is None else crew
        self._setup = setup
        self._seconds = SHORT
        sealed, self._block = seal(setup)
        try:
            self._crew.arm(sealed, self._block)
        except BaseException:
            self.close()
            raise

    @property
    def _members(self) -> list[WorkerProcess[Task]]:
        return self._crew.members[: self._size]

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        tasks = (Task(group) for group in groups(jobs, self._setup))
        stint = object()
        if not self._crew.has(self._block):
            raise SparsonaError("the workers of this pool have taken up the set-up of another: make a new pool")
        self._crew.begin(stint)
        try:
            yield from self._run(tasks, stint)
        finally:
            if self._crew.works_for(stint):  # else what is under way is another's
                self._crew.begin(None)

    def _run(self, tasks: Iterator[Task], stint: object) -> Iterator[Outcome]:
        again: deque[Task] = deque()
        outcomes: list[Outcome] = []
        following = next(tasks, None)
        while True:
            self._crew.fill()
            depth = DEPTH if self._seconds < SHORT else 1
            for member in sorted(self._members, key=lambda member: len(member.tasks)):
                while not member.arming and len(member.tasks) < depth and (again or following):
                    if not again and following:
                        again.append(following)
                        following = next(tasks, None)
                    if not self._give(member, again.popleft(), again):
                        break
            yield from outcomes
            if not self._crew.works_for(stint):
                raise SparsonaError("the workers were given other jobs before these were done: take all outcomes first")
            if not (again or following or any(member.tasks for member in self._members)):
                return
            outcomes = [outcome for member in self._crew.heard() for outcome in self._hear(member, again)]

    def _give(self, member: WorkerProcess[Task], task: Task, again: deque[Task]) -> bool:
        tickets = tuple(self.store.ticket(job.client) for job in task.jobs)
        try:
            member.give(Order(task.jobs, tickets, self.store.scratch), task)
        except Died:
            self._mourn(member, again)
            return False
        return True

    def _hear(self, member: WorkerProcess[Task], again: deque[Task]) -> Iterator[Outcome]:
        try:
            message = member.receive()
        except Died:
            self._mourn(member, again)
            return
        if isinstance(message, Ready):
            self._crew.is_ready(member)
        elif isinstance(message, Failure) and member.arming > 1:  # at a set-up that nobody asks for any more
            member.arming -= 1
        elif isinstance(message, Failure):
            if member.arming:
                self._crew.dismiss(member)
            else:
                member.tasks.popleft()
            if message.trace:
                message.error.add_note(f"in a worker process:\n{message.trace}")
            raise message.error
        else:
            yield from self._take(member.tasks.popleft(), message)

    def _take(self, task: Task, report: Report) -> Iterator[Outcome]:
        self.peak_rss_mb = max(self.peak_rss_mb, report.memory / 1024)
        for job, outcome, wrote in zip(task.jobs, report.outcomes, report.wrote, strict=True):
            if wrote is not None:
                self.store.written(job.client, wrote)
            self._seconds += 0.2 * (outcome.seconds * len(task.jobs) - self._seconds)
            yield replace(outcome, job=job)

    def _mourn(self, member: WorkerProcess[Task], again: deque[Task]) -> None:
        """A worker has died: what it was asked to do is done again, by others, unless they all die of it."""
        how = self._crew.bury(member)
        if not member.tasks:
            return
        member.tasks[0].deaths += 1
        names = ", ".join(job.client for job in member.tasks[0].jobs)
        if member.tasks[0].deaths >= PATIENCE:
            raise SparsonaError(
                f"{PATIENCE} worker processes in a row died ({how}) in the turn of {names}: if memory is short, "
                "use fewer --workers; --engine inprocess shows what happens"
            )
        log.warning("a worker process died (%s) in the turn of %s, which is run again", how, names)
        again.extend(member.tasks)

    def close(self) -> None:
        if self._own:
            self._crew.close()
        self._block.close()
        self.store.close()
