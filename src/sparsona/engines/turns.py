"""Clients' turns as all engines with workers run them: packed states in, outcomes and packed states out."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import NoReturn, TypeVar

from sparsona.errors import RunError, SparsonaError
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.worker import Job, Outcome, Worker
from sparsona.runs.state import pack, unpack_like
from sparsona.wire import reference_in

T = TypeVar("T")
DEPTH = 2
"""How many requests a worker may have at a time: the one that it works on, and the next."""

SHORT = 0.05
"""Seconds. Where turns are shorter than this, a worker is given the next one before it has finished."""

MAX_DEATHS = 3
"""How many workers may die in the same turn before it is given up."""


@dataclass
class JobGroup:
    """Turns that one worker runs together, and how many workers have died in them."""

    jobs: tuple[Job, ...]
    deaths: int = field(default=0)

    @property
    def names(self) -> str:
        """The clients, with commas."""
        return ", ".join(job.client for job in self.jobs)

    @property
    def references(self) -> tuple[bytes, ...]:
        """The fingerprints of what the downlinks are coded against: a worker must find these."""
        found = (reference_in(job.down[0]) for job in self.jobs if job.down)
        return tuple(dict.fromkeys(name for name in found if name is not None))


def run_turn(worker: Worker, job: Job, state: bytes | None) -> tuple[Outcome, bytes | None]:
    """The outcome of a turn, and the client's new state, None where there is nothing to keep.

    `state` is what the client remembers, None before its first turn.
    """
    before = ClientMemory.fresh(worker.setup.method, worker.setup.task, job.client)
    if state is not None:
        before = _unpacked(state, before, job)
    memory, outcome = worker.run(job, before)
    return outcome, None if job.kind != "fit" or memory.nothing_to_write(before) else pack(memory)


def _unpacked(state: bytes, fresh: ClientMemory, job: Job) -> ClientMemory:
    try:
        memory: ClientMemory = unpack_like(state, fresh)
    except RunError as error:
        raise RunError(f"client {job.client}: {error}") from None
    return memory


def grouped(jobs: Iterator[Job], size: Callable[[], int]) -> Iterator[JobGroup]:
    """Jobs in groups, each as large as `size` says when it is made: turns that are shorter than the way to a worker and
    back go there together."""
    while group := tuple(islice(jobs, max(1, size()))):
        yield JobGroup(group)


@dataclass(frozen=True)
class Failure:
    """An error, to be raised again in the server; `trace` where it is not one of ours."""

    error: BaseException
    trace: str = ""

    def raise_again(self) -> NoReturn:
        """Raise the error here, with the worker's trace as a note."""
        if self.trace:
            self.error.add_note(f"in a worker process:\n{self.trace}")
        raise self.error


def caught(work: Callable[[], T]) -> T | Failure:
    """What `work` gives, or how it failed."""
    try:
        return work()
    except SparsonaError as error:
        return Failure(error)
    except Exception as error:  # noqa: BLE001  (whatever it is, the server must raise it)
        return Failure(_portable(error), traceback.format_exc())


def _portable(error: Exception) -> BaseException:
    """The error if it can be pickled, else one that says the same."""
    try:
        copy: object = ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # noqa: BLE001  (a class may refuse in any way)
        copy = None
    return error if type(copy) is type(error) else RuntimeError(f"{type(error).__name__}: {error}")
