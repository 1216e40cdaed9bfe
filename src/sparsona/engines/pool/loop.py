"""What runs in a worker process of the pool: requests come in, responses go out, until the connection is closed."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import reduction, spawn
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import torch

from sparsona.engines.pool.shared import SharedSetup, Slot, attach_setup
from sparsona.errors import InputError, SparsonaError
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.references import ReferenceStore
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome, Worker
from sparsona.runs.store import Ticket, read_state, write_state

T = TypeVar("T")
DEPTH = 2
"""How many requests a worker may have at a time: the one that it works on, and the next."""

INSIDE = False
"""Whether this process is a worker."""


@dataclass(frozen=True)
class Configure:
    """Use another set-up. The handle of the shared block follows on the connection."""

    shared: SharedSetup


@dataclass(frozen=True)
class Configured:
    """The set-up is in use."""


@dataclass(frozen=True)
class Request:
    """Clients' turns to run, with their states and `references` on disk. A worker that outlives the server removes
    `scratch`."""

    jobs: tuple[Job, ...]
    tickets: tuple[Ticket, ...]
    scratch: Path | None
    references: Path


@dataclass(frozen=True)
class Response:
    """The outcomes of one request. `wrote` is for each turn the sha256 of the client's new state, None without one.

    `memory` is the most the worker held, in kilobytes.
    """

    outcomes: tuple[Outcome, ...]
    wrote: tuple[str | None, ...]
    memory: int


@dataclass(frozen=True)
class InSlot:
    """A request or a response is in this slot. The response to a request is in the slot of the same number."""

    slot: int
    length: int


@dataclass(frozen=True)
class Stop:
    """There is no more work."""


@dataclass(frozen=True)
class Failure:
    """An error, to be raised again in the server; `trace` where it is not one of ours."""

    error: BaseException
    trace: str = ""


def main(connection: int, server_pipe: int, *slots: int) -> None:
    """Serve the server behind these handles until it sends :class:`Stop`, or has died."""
    global INSIDE
    INSIDE = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop = WorkerLoop()
    fcntl.fcntl(server_pipe, fcntl.F_SETFL, 0)  # no more SIGIO: from here on a thread waits for the server's end
    threading.Thread(target=_exit_with_server, args=(server_pipe, loop), daemon=True).start()
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    opened = [Slot(handle) for handle in slots]
    requests, responses = opened[:DEPTH], opened[DEPTH:]
    server: Connection[Any, Any] = Connection(connection)
    try:
        while not isinstance(message := server.recv(), Stop):
            if isinstance(message, Configure):
                server.send(loop.configure(message.shared, reduction.recv_handle(server)))
                continue
            respond = partial(_respond, loop, message, requests[message.slot], responses[message.slot])
            server.send(_caught(respond))
    except (EOFError, OSError):
        _clean_up(loop)
    os._exit(0)


def _respond(loop: WorkerLoop, request: InSlot, requests: Slot, responses: Slot) -> InSlot:
    return InSlot(request.slot, responses.put(loop.work(requests.get(request.length))))


def _exit_with_server(server_pipe: int, loop: WorkerLoop) -> None:
    """Nothing is ever written to this pipe: it ends when the server does, in whatever way."""
    os.read(server_pipe, 1)
    _clean_up(loop)
    os._exit(1)


def _clean_up(loop: WorkerLoop) -> None:
    if loop.scratch is not None:
        shutil.rmtree(loop.scratch, ignore_errors=True)


class WorkerLoop:
    """One worker process: its set-up and the runner that it runs clients on."""

    def __init__(self) -> None:
        self.scratch: Path | None = None
        self._worker: Worker | None = None

    def configure(self, shared: SharedSetup, handle: int) -> Configured | Failure:
        """Become the worker of a federation whose data lie in shared memory."""
        self._worker = None
        found = _caught(lambda: Worker(_attached(shared, handle), ReferenceStore()))
        if isinstance(found, Failure):
            return found
        self._worker = found
        return Configured()

    def work(self, request: Request) -> Response:
        """Run the turns of one request."""
        assert self._worker is not None
        self.scratch = request.scratch
        method, task = self._worker.setup.method, self._worker.setup.task
        self._worker.references.settle(request.references)
        outcomes, wrote = [], []
        for job, ticket in zip(request.jobs, request.tickets, strict=True):
            memory = ClientMemory.fresh(method, task, job.client)
            if ticket.read is not None:
                memory = read_state(ticket.read, memory, job.client)
            memory, outcome = self._worker.run(job, memory)
            keep = job.kind == "fit" and memory.worth_keeping
            wrote.append(write_state(ticket.write, memory) if keep else None)
            outcomes.append(outcome)
        return Response(tuple(outcomes), tuple(wrote), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _attached(shared: SharedSetup, handle: int) -> Setup:
    if shared.main:
        spawn.prepare(dict(shared.main))
    try:
        return attach_setup(shared, handle)
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
    except Exception as error:  # noqa: BLE001  (whatever it is, the server must raise it)
        return Failure(_portable(error), traceback.format_exc())


def _portable(error: Exception) -> BaseException:
    """The error if it can be pickled, else one that says the same."""
    try:
        copy: object = reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(error))
    except Exception:  # noqa: BLE001  (a class may refuse in any way)
        copy = None
    return error if type(copy) is type(error) else RuntimeError(f"{type(error).__name__}: {error}")
