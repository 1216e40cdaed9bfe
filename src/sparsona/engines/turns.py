"""Clients' turns as all engines with workers run them: packed states in, outcomes and packed states out."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.reduction import ForkingPickler
from typing import NoReturn, TypeVar

from sparsona.errors import RunError, SparsonaError
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.worker import Job, Outcome, Worker
from sparsona.runs.state import pack, unpack_like

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
        return ", ".join(job.client for job in self.jobs)


def run_turns(
    worker: Worker, jobs: Sequence[Job], states: Sequence[bytes | None]
) -> list[tuple[Outcome, bytes | None]]:
    """The outcomes of some turns, without their downlinks, and each client's new state, None where there is none.

    `states` are what the clients remember, None before a client's first turn.
    """
    method, task = worker.setup.method, worker.setup.task
    memories = []
    for job, state in zip(jobs, states, strict=True):
        fresh = ClientMemory.fresh(method, task, job.client)
        memories.append(fresh if state is None else _unpacked(state, fresh, job))
    done = []
    for memory, outcome in worker.run_all(jobs, memories):
        keep = outcome.job.kind == "fit" and memory.worth_keeping
        done.append((replace(outcome, job=replace(outcome.job, down=b"")), pack(memory) if keep else None))
    return done


def _unpacked(state: bytes, fresh: ClientMemory, job: Job) -> ClientMemory:
    try:
        memory: ClientMemory = unpack_like(state, fresh)
    except RunError as error:
        raise RunError(f"client {job.client}: {error}") from None
    return memory


@dataclass(frozen=True)
class Failure:
    """An error, to be raised again in the server; `trace` where it is not one of ours."""

    error: BaseException
    trace: str = ""

    def raise_again(self) -> NoReturn:
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
