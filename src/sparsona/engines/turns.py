"""Clients' turns in all engines with workers: memories in, outcomes and memories out.

The server keeps the clients' memories and sends each turn what it needs. A worker that dies takes nothing along.
"""

import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import NoReturn, TypeVar

from sparsona.errors import SparsonaError
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.engine import LocalEngine
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome, Worker
from sparsona.system import peak_rss_kb
from sparsona.wire import Reference, reference_in

log = logging.getLogger(__name__)
T = TypeVar("T")
DEPTH = 2  # largest number of requests per worker: the current one, and the next
SHORT = 0.05  # Seconds. If turns are shorter than this, a worker gets the next request before it has finished.
MAX_DEATHS = 3  # number of workers that may die in the same turn before it is given up


@dataclass
class JobGroup:
    """Turns that one worker runs together, and the number of workers that have died in them."""

    jobs: tuple[Job, ...]
    deaths: int = field(default=0)

    @property
    def names(self) -> str:
        """Return the clients, with commas."""
        return ", ".join(job.client for job in self.jobs)

    @property
    def references(self) -> tuple[bytes, ...]:
        """Return the fingerprints of the references that a worker needs to decode the downlinks."""
        found = (reference_in(job.down[0]) for job in self.jobs if job.down)
        return tuple(dict.fromkeys(name for name in found if name is not None))


class Pace:
    """The average duration of a turn. A request is worth `worthwhile` seconds of work, and has at most `most` turns."""

    def __init__(self, worthwhile: float, most: int) -> None:
        self._worthwhile, self._most = worthwhile, most
        self._seconds = SHORT

    def took(self, seconds: float) -> None:
        """Update the average with one turn."""
        self._seconds += 0.2 * (seconds - self._seconds)

    @property
    def together(self) -> int:
        """Return the number of turns per request."""
        return max(1, min(self._most, int(self._worthwhile / self._seconds)))

    @property
    def depth(self) -> int:
        """Return the largest number of requests per worker."""
        return DEPTH if self._seconds < SHORT else 1


@dataclass(frozen=True)
class Response:
    """The outcomes of a request, each client's new memory (None: keep the old), and the worker's peak memory in kB."""

    outcomes: tuple[Outcome, ...]
    kept: tuple[ClientMemory | None, ...]
    memory: int


def run_turns(
    worker: Worker, jobs: Sequence[Job], memories: Sequence[ClientMemory | None], references: Iterable[Reference]
) -> Response:
    """Run the turns of one request, with its `references`. A client without a memory has its first turn."""
    for reference in references:
        worker.references.add(reference)
    outcomes, kept = [], []
    try:
        for job, memory in zip(jobs, memories, strict=True):
            before = ClientMemory.fresh(worker.setup, job.client) if memory is None else memory
            after, outcome = worker.run(job, before)
            outcomes.append(outcome)
            kept.append(after if job.writes and after.worth_writing(before) else None)
    finally:
        worker.references.files.keep(())
    return Response(tuple(outcomes), tuple(kept), peak_rss_kb())


class WorkerEngine(LocalEngine):
    """The common part of engines with workers: the clients' memories, and the pace of requests."""

    def __init__(self, setup: Setup, pace: Pace) -> None:
        super().__init__(setup)
        self.peak_rss_mb = 0.0
        self.pace = pace

    def memories(self, group: JobGroup) -> tuple[ClientMemory | None, ...]:
        """Return the memories of a group's clients; None before a client's first turn."""
        return tuple(self.store.find(job.client) for job in group.jobs)

    def accept(self, group: JobGroup, response: Response) -> Iterator[Outcome]:
        """Yield the outcomes of a response, after the clients' new states are stored."""
        self.peak_rss_mb = max(self.peak_rss_mb, response.memory / 1024)
        for job, outcome, kept in zip(group.jobs, response.outcomes, response.kept, strict=True):
            if kept is not None:
                self.store.put(job.client, kept)
            self.pace.took(outcome.seconds)
            yield outcome


class TurnQueue:
    """Turns that wait for a worker: first those of dead workers, then new ones. One new group is taken ahead."""

    def __init__(self, jobs: Iterable[Job], pace: Pace) -> None:
        self._jobs, self._pace = iter(jobs), pace
        self._repeated: deque[JobGroup] = deque()
        self._following = self._group()

    def __bool__(self) -> bool:
        return bool(self._repeated) or self._following is not None

    def take(self) -> JobGroup:
        """Return the next group for a worker."""
        if self._repeated:
            return self._repeated.popleft()
        if self._following is None:
            raise IndexError("no turn waits")
        group, self._following = self._following, self._group()
        return group

    def repeat_lost(self, groups: Iterable[JobGroup], worker: str, how: str) -> None:
        """Queue the groups of a dead worker again; raise an error if too many workers died in the same turn."""
        lost = list(groups)
        if not lost:
            return
        lost[0].deaths += 1
        if lost[0].deaths >= MAX_DEATHS:
            raise SparsonaError(
                f"{MAX_DEATHS} workers in a row died ({how}) in the turn of {lost[0].names}: if memory is short, use "
                "fewer --workers; --engine inprocess shows what happens"
            )
        log.warning("%s died (%s) in the turn of %s, which is run again", worker, how, lost[0].names)
        self._repeated.extend(lost)

    def _group(self) -> JobGroup | None:
        """Return the next new turns, as many as `together`; None after the last."""
        jobs = tuple(islice(self._jobs, self._pace.together))
        return JobGroup(jobs) if jobs else None


@dataclass(frozen=True)
class Failure:
    """An error that the server raises again; `trace` if it is not an error of Sparsona."""

    error: BaseException
    trace: str = ""

    def raise_again(self) -> NoReturn:
        """Raise the error here, with the worker's trace as a note."""
        if self.trace:
            self.error.add_note(f"in a worker process:\n{self.trace}")
        raise self.error


def caught(work: Callable[[], T]) -> T | Failure:
    """Return the result of `work`, or its failure."""
    try:
        return work()
    except SparsonaError as error:
        return Failure(error)
    except Exception as error:  # noqa: BLE001  (whatever it is, the server must raise it)
        return Failure(_portable(error), traceback.format_exc())


def _portable(error: Exception) -> BaseException:
    """Return the error if it can be pickled, else a `RuntimeError` with the same text."""
    try:
        copy: object = ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # noqa: BLE001  (a class may refuse in any way)
        copy = None
    return error if type(copy) is type(error) else RuntimeError(f"{type(error).__name__}: {error}")
