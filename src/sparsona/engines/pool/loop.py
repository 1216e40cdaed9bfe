"""What runs in a worker process of the pool: orders come in, reports go out, until the line is closed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import reduction, spawn
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import torch

from sparsona.engines.pool.shared import Sealed, Slot, unseal
from sparsona.errors import InputError, SparsonaError
from sparsona.federation.worker import Job, Outcome, Setup, Worker
from sparsona.runs.store import Ticket, read_state, write_state

T = TypeVar("T")
DEPTH = 2
"""How many orders a worker may have at a time: one that it works on, and the next."""

INSIDE = False
"""Whether this process is a worker."""


@dataclass(frozen=True)
class Arm:
    """Take up another set-up. The handle of the shared block follows on the line."""

    sealed: Sealed


@dataclass(frozen=True)
class Order:
    """Clients' turns to run, with their states on disk. `scratch` is to be removed by whoever outlives the server."""

    jobs: tuple[Job, ...]
    tickets: tuple[Ticket, ...]
    scratch: Path | None


@dataclass(frozen=True)
class Letter:
    """An order or a report lies in this slot; the answer to an order goes to the slot of the same number."""

    slot: int
    length: int


@dataclass(frozen=True)
class Leave:
    """The work is done."""


@dataclass(frozen=True)
class Report:
    """The answer to one order; `wrote` is for each turn the sha256 of the client's new state, None where it has none.

    The jobs in the outcomes come back without their downlinks. `memory` is the most the worker held, in kilobytes.
    """

    outcomes: tuple[Outcome, ...]
    wrote: tuple[str | None, ...]
    memory: int


@dataclass(frozen=True)
class Ready:
    """The set-up is taken up."""


@dataclass(frozen=True)
class Failure:
    """An error, to be raised again on the other side; `trace` where it is not one of ours."""

    error: BaseException
    trace: str = ""


def main(line: int, lifeline: int, *slots: int) -> None:
    """Serve the server behind these handles until it says that the work is done, or is no more."""
    global INSIDE
    INSIDE = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    desk = WorkerLoop()
    threading.Thread(target=_outlive, args=(lifeline, desk), daemon=True).start()
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    boxes = [Slot(handle) for handle in slots]
    orders, reports = boxes[:DEPTH], boxes[DEPTH:]
    talk: Connection[Any, Any] = Connection(line)
    try:
        while not isinstance(message := talk.recv(), Leave):
            if isinstance(message, Arm):
                talk.send(desk.arm(message.sealed, reduction.recv_handle(talk)))
                continue
            answer = partial(_report, desk, message, orders[message.slot], reports[message.slot])
            talk.send(_caught(answer))
    except (EOFError, OSError):
        _clean_up(desk)
    os._exit(0)


def _report(desk: WorkerLoop, letter: Letter, orders: Slot, reports: Slot) -> Letter:
    return Letter(letter.slot, reports.put(desk.work(orders.get(letter.length))))


def _outlive(lifeline: int, desk: WorkerLoop) -> None:
    """Nothing is ever written to the lifeline: it ends when the server does, in whatever way."""
    os.read(lifeline, 1)
    _clean_up(desk)
    os._exit(1)


def _clean_up(desk: WorkerLoop) -> None:
    if desk.scratch is not None:
        shutil.rmtree(desk.scratch, ignore_errors=True)


class WorkerLoop:
    """One worker process: the set-up that it has taken up and the runner that it runs clients on."""

    def __init__(self) -> None:
        self.scratch: Path | None = None
        self._worker: Worker | None = None

    def arm(self, sealed: Sealed, handle: int) -> Ready | Failure:
        self._worker = None
        found = _caught(lambda: Worker(_taken_up(sealed, handle)))
        if isinstance(found, Failure):
            return found
        self._worker = found
        return Ready()

    def work(self, order: Order) -> Report:
        assert self._worker is not None
        self.scratch = order.scratch
        method, task = self._worker.setup.method, self._worker.setup.task
        states = [
            method.start_client(task, job.client) if ticket.read is None
            else read_state(ticket.read, method, task, job.client)
            for job, ticket in zip(order.jobs, order.tickets, strict=True)
        ]  # fmt: skip
        outcomes, wrote = [], []
        for ticket, (state, outcome) in zip(order.tickets, self._worker.run_all(order.jobs, states), strict=True):
            keep = outcome.job.kind == "fit" and state is not None
            wrote.append(write_state(ticket.write, state) if keep else None)
            outcomes.append(replace(outcome, job=replace(outcome.job, down=b"")))
        return Report(tuple(outcomes), tuple(wrote), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _taken_up(sealed: Sealed, handle: int) -> Setup:
    if sealed.main:
        spawn.prepare(dict(sealed.main))
    try:
        return unseal(sealed, handle)
    except (AttributeError, ImportError) as error:
        raise InputError(
            f"a worker process cannot find the model, method or objective ({error}): "
            "put it into a module that can be imported, or choose --engine inprocess"
        ) from None


def _caught(work: Callable[[], T]) -> T | Failure:
    try:
        return work()
    except SparsonaError as error:
        return Failure(error)
    except Exception as error:  # noqa: BLE001  (whatever it is, the server must hear of it)
        return Failure(_portable(error), traceback.format_exc())


def _portable(error: Exception) -> BaseException:
    """The error if it survives the journey, else one that says the same."""
    try:
        copy: object = reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(error))
    except Exception:  # noqa: BLE001  (a class may refuse in any way)
        copy = None
    return error if type(copy) is type(error) else RuntimeError(f"{type(error).__name__}: {error}")
