"""What runs in a worker process of the pool: orders come in, reports go out, until the line is closed."""

from __future__ import annotations

import os
import queue
import resource
import shutil
import signal
import threading
import traceback
from dataclasses import dataclass, replace
from multiprocessing import reduction, spawn
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from sparsona.client import Job, Outcome, Setup, Worker
from sparsona.engines._shared import Sealed, unseal
from sparsona.errors import InputError, SparsonaError
from sparsona.state import pack
from sparsona.store import Ticket, read_state

INSIDE = False
"""Whether this process is a worker."""


@dataclass(frozen=True)
class Arm:
    """Take up another set-up. The pickled rest and the handle of the shared block follow on the line."""

    sealed: Sealed


@dataclass(frozen=True)
class Order:
    """Clients' turns to run, with their states on disk. `scratch` is to be removed by whoever outlives the server."""

    jobs: tuple[Job, ...]
    tickets: tuple[Ticket, ...]
    scratch: Path | None


@dataclass(frozen=True)
class Leave:
    """The work is done."""


@dataclass(frozen=True)
class Report:
    """The answer to one order; `wrote` says for each turn whether the client's state was written.

    The jobs in the outcomes come back without their downlinks. `memory` is the most the worker held, in kilobytes.
    """

    outcomes: tuple[Outcome, ...]
    wrote: tuple[bool, ...]
    memory: int


@dataclass(frozen=True)
class Ready:
    """The set-up is taken up."""


@dataclass(frozen=True)
class Failure:
    """An error, to be raised again on the other side; `trace` where it is not one of ours."""

    error: BaseException
    trace: str = ""


def main(handle: int) -> None:
    """Serve the server behind this handle until it closes the line."""
    global INSIDE
    INSIDE = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    line: Connection[Any, Any] = Connection(handle)
    desk = Desk()
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(line, inbox, desk), daemon=True).start()
    while True:
        answer = desk.answer(inbox.get())
        try:
            line.send(answer)
        except OSError:
            os._exit(1)


def _listen(line: Connection[Any, Any], inbox: queue.SimpleQueue[Any], desk: Desk) -> None:
    """Take in what comes, so that the server never waits for a busy worker; leave when there is no server any more."""
    try:
        while not isinstance(message := line.recv(), Leave):
            if isinstance(message, Arm):
                handle = reduction.recv_handle(line)
                inbox.put((message.sealed, handle))
            else:
                inbox.put(message)
    except (EOFError, OSError):
        if desk.scratch is not None:
            shutil.rmtree(desk.scratch, ignore_errors=True)
    os._exit(0)


class Desk:
    """One worker process: the set-up that it has taken up and the bench that it runs clients on."""

    def __init__(self) -> None:
        self.scratch: Path | None = None
        self._worker: Worker | None = None

    def answer(self, message: Any) -> Report | Ready | Failure:
        try:
            if isinstance(message, Order):
                return self._work(message)
            self._worker = None
            self._worker = Worker(_taken_up(*message))
            return Ready()
        except SparsonaError as error:
            return Failure(error)
        except Exception as error:  # noqa: BLE001  (whatever it is, the server must hear of it)
            return Failure(_portable(error), traceback.format_exc())

    def _work(self, order: Order) -> Report:
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
            if keep:
                ticket.write.write_bytes(pack(state))
            wrote.append(keep)
            outcomes.append(replace(outcome, job=replace(outcome.job, down=b"")))
        return Report(tuple(outcomes), tuple(wrote), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _taken_up(sealed: Sealed, handle: int) -> Setup:
    if sealed.main:
        spawn.prepare(dict(sealed.main))
    try:
        setup, names = reduction.ForkingPickler.loads(sealed.payload)
    except (AttributeError, ImportError) as error:
        raise InputError(
            f"a worker process cannot find the model, method or objective ({error}): "
            "put it into a module that can be imported, or choose --engine inprocess"
        ) from None
    return unseal(sealed, handle, setup, names)


def _portable(error: Exception) -> BaseException:
    """The error if it survives the journey, else one that says the same."""
    try:
        copy: object = reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(error))
    except Exception:  # noqa: BLE001  (a class may refuse in any way)
        copy = None
    return error if type(copy) is type(error) else RuntimeError(f"{type(error).__name__}: {error}")
