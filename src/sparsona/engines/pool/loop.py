"""The worker process of the pool: it answers requests until the connection is closed."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from multiprocessing import reduction, spawn
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sparsona.engines.child import end_with_parent
from sparsona.engines.pool.shared import SharedSetup, Slot, attach_setup
from sparsona.engines.turns import DEPTH, Failure, Response, caught, run_turns
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.references import ReferenceStore
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Worker
from sparsona.training.determinism import make_deterministic
from sparsona.wire import Reference

INSIDE = False
"""True in a worker process."""


@dataclass(frozen=True)
class Configure:
    """Use another set-up. The handle of the shared block follows on the connection."""

    shared: SharedSetup


@dataclass(frozen=True)
class Configured:
    """The set-up is in use."""


@dataclass(frozen=True)
class Request:
    """Clients' turns to run, with the clients' memories and the `references` of their downlinks.

    A worker that outlives the server removes its `scratch` folders.
    """

    jobs: tuple[Job, ...]
    memories: tuple[ClientMemory | None, ...]
    references: tuple[Reference, ...]
    scratch: tuple[Path, ...]


@dataclass(frozen=True)
class InSlot:
    """A request or a response is in this slot. The response to a request is in the slot of the same number."""

    slot: int
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Stop:
    """There is no more work."""


def main(connection: int, server_pipe: int, *slots: int) -> None:
    """Serve the server behind these handles until it sends :class:`Stop` or dies."""
    global INSIDE
    INSIDE = True
    loop = WorkerLoop()
    end_with_parent(server_pipe, partial(_clean_up, loop))
    make_deterministic()
    opened = [Slot(handle) for handle in slots]
    requests, responses = opened[:DEPTH], opened[DEPTH:]
    server: Connection[Any, Any] = Connection(connection)
    try:
        while not isinstance(message := server.recv(), Stop):
            if isinstance(message, Configure):
                server.send(loop.configure(message.shared, reduction.recv_handle(server)))
                continue
            respond = partial(_respond, loop, message, requests[message.slot], responses[message.slot])
            server.send(caught(respond))
    except (EOFError, OSError):
        _clean_up(loop)
    os._exit(0)


def _respond(loop: WorkerLoop, request: InSlot, requests: Slot, responses: Slot) -> InSlot:
    return InSlot(request.slot, responses.put(loop.work(requests.get(request.lengths))))


def _clean_up(loop: WorkerLoop) -> None:
    for folder in loop.scratch:
        shutil.rmtree(folder, ignore_errors=True)


class WorkerLoop:
    """One worker process: its set-up, its runner and its scratch folders."""

    def __init__(self) -> None:
        self.scratch: tuple[Path, ...] = ()
        self._worker: Worker | None = None

    def configure(self, shared: SharedSetup, handle: int) -> Configured | Failure:
        """Use the set-up whose data are in shared memory."""
        self._worker = None
        found = caught(lambda: Worker(_attached(shared, handle), ReferenceStore(sys.maxsize)))
        if isinstance(found, Failure):
            return found
        self._worker = found
        return Configured()

    def work(self, request: Request) -> Response:
        """Run the turns of one request."""
        assert self._worker is not None
        self.scratch = request.scratch
        return run_turns(self._worker, request.jobs, request.memories, request.references)


def _attached(shared: SharedSetup, handle: int) -> Setup:
    if shared.main:
        spawn.prepare(dict(shared.main))
    return attach_setup(shared, handle)
