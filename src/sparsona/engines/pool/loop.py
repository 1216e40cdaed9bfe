"""The worker process of the pool: it answers requests until the connection is closed, from memory that is shared."""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from multiprocessing import reduction, spawn
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data.dataset import Array
from sparsona.engines.child import end_with_parent
from sparsona.engines.shipping import setup_arrays, setup_of
from sparsona.engines.turns import DEPTH, Failure, Response, caught, run_turns
from sparsona.errors import InputError
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.references import ReferenceStore
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Worker
from sparsona.training.determinism import make_deterministic
from sparsona.wire import Reference

ALIGN = 64


@dataclass(frozen=True)
class ArrayLocation:
    """The place of an array in the block."""

    start: int
    dtype: str
    shape: tuple[int, ...]


class SharedBlock:
    """Arrays in memory that has a file descriptor and no name.

    The kernel frees it when the last process that holds it ends, however it ends: nothing is left behind.
    """

    def __init__(self, arrays: tuple[Array, ...]) -> None:
        places: list[ArrayLocation] = []
        end = 0
        for array in arrays:
            start = -(-end // ALIGN) * ALIGN
            places.append(ArrayLocation(start, array.dtype.str, array.shape))
            end = start + array.nbytes
        self.places = tuple(places)
        self.handle = _nameless()
        os.ftruncate(self.handle, max(end, 1))
        with mmap.mmap(self.handle, max(end, 1)) as memory:
            for array, place in zip(arrays, self.places, strict=True):
                target = np.ndarray(place.shape, place.dtype, memory, place.start)
                target[...] = array
                del target

    def close(self) -> None:
        """Free the memory."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("sparsona")
    handle, path = tempfile.mkstemp(prefix="sparsona-")
    os.unlink(path)
    return handle


def mapped(handle: int, places: tuple[ArrayLocation, ...]) -> tuple[Array, ...]:
    """Return the arrays of a block in another process. Writing to one changes a private copy of the page."""
    memory = mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
    os.close(handle)
    return tuple(np.ndarray(place.shape, place.dtype, memory, place.start) for place in places)


class Slot:
    """A place for one message between two processes, in memory that both map and that grows with the messages.

    A message stays until the next one replaces it. So the two processes must agree on the next writer.
    """

    def __init__(self, handle: int | None = None) -> None:
        self.handle = _nameless() if handle is None else handle
        self._memory: mmap.mmap | None = None

    def put(self, message: object) -> tuple[int, ...]:
        """Write a message; return the lengths of its pieces, which the reader needs."""
        beside: list[pickle.PickleBuffer] = []
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL, buffer_callback=beside.append)
        pieces = [memoryview(data), *(buffer.raw() for buffer in beside)]
        lengths = tuple(map(len, pieces))
        if self._memory is None or sum(lengths) > len(self._memory):
            os.ftruncate(self.handle, 1 << max(16, (sum(lengths) - 1).bit_length()))
            self._map()
        assert self._memory is not None
        at = 0
        for piece, length in zip(pieces, lengths, strict=True):
            self._memory[at : at + length] = piece
            at += length
        return lengths

    def get(self, lengths: tuple[int, ...]) -> Any:
        """Read the message, given the lengths of its pieces."""
        if self._memory is None or sum(lengths) > len(self._memory):
            self._map()
        assert self._memory is not None
        ends = list(accumulate(lengths))
        beside = [self._memory[start:end] for start, end in pairwise(ends)]
        with memoryview(self._memory) as whole, whole[: lengths[0]] as data:
            return ForkingPickler.loads(data, buffers=beside)

    def close(self) -> None:
        """Free the memory."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        os.close(self.handle)

    def _map(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._memory = mmap.mmap(self.handle, 0)


@dataclass(frozen=True)
class SharedSetup:
    """The facts with which a worker finds a set-up in the block; `main` is needed to import the user's script."""

    places: tuple[ArrayLocation, ...]
    main: Mapping[str, Any]


def share_setup(setup: Setup) -> tuple[SharedSetup, SharedBlock]:
    """Return the set-up for worker processes, and the memory block that they share."""
    arrays = setup_arrays(setup)
    main = _main(arrays[-1].tobytes())
    block = SharedBlock(arrays)
    return SharedSetup(block.places, main), block


def _main(payload: bytes) -> dict[str, Any]:
    """Return the data for importing the user's script if the payload names it; else nothing."""
    if b"__main__" not in payload:
        return {}
    if not Path(getattr(sys.modules["__main__"], "__file__", None) or "").is_file():  # a notebook, or stdin
        raise InputError(
            "a class of this interactive session cannot be sent to worker processes: "
            "move it into a module, or choose --engine inprocess"
        )
    wanted = ("init_main_from_name", "init_main_from_path", "sys_argv")
    return {key: value for key, value in spawn.get_preparation_data("worker").items() if key in wanted}


INSIDE = False  # true in a worker process


@dataclass(frozen=True)
class Request:
    """Clients' turns to run. A worker that outlives the server removes the `scratch` folders."""

    jobs: tuple[Job, ...]
    memories: tuple[ClientMemory | None, ...]
    references: tuple[Reference, ...]
    scratch: tuple[Path, ...]


@dataclass(frozen=True)
class SlotNotice:
    """A request or a response is in this slot. The response to a request is in the slot of the same number."""

    slot: int
    lengths: tuple[int, ...]


def main(connection: int, server_pipe: int, *slots: int) -> None:
    """Serve the server behind these handles until it sends None or dies.

    A set-up is followed by the handle of its block. The answer is None once it is in use.
    """
    global INSIDE
    INSIDE = True
    loop = WorkerLoop()
    end_with_parent(server_pipe, partial(_clean_up, loop))
    make_deterministic()
    opened = [Slot(handle) for handle in slots]
    requests, responses = opened[:DEPTH], opened[DEPTH:]
    server: Connection[Any, Any] = Connection(connection)
    try:
        while (message := server.recv()) is not None:
            if isinstance(message, SharedSetup):
                server.send(loop.configure(message, reduction.recv_handle(server)))
                continue
            respond = partial(_respond, loop, message, requests[message.slot], responses[message.slot])
            server.send(caught(respond))
    except (EOFError, OSError):
        _clean_up(loop)
    os._exit(0)


def _respond(loop: WorkerLoop, request: SlotNotice, requests: Slot, responses: Slot) -> SlotNotice:
    return SlotNotice(request.slot, responses.put(loop.work(requests.get(request.lengths))))


def _clean_up(loop: WorkerLoop) -> None:
    for folder in loop.scratch:
        shutil.rmtree(folder, ignore_errors=True)


class WorkerLoop:
    """One worker process: its set-up, its runner and its scratch folders."""

    def __init__(self) -> None:
        self.scratch: tuple[Path, ...] = ()
        self._worker: Worker | None = None

    def configure(self, shared: SharedSetup, handle: int) -> Failure | None:
        """Use the set-up whose data are in shared memory."""
        self._worker = None

        def attach() -> None:
            if shared.main:
                spawn.prepare(dict(shared.main))
            self._worker = Worker(setup_of(mapped(handle, shared.places)), ReferenceStore(sys.maxsize))

        return caught(attach)

    def work(self, request: Request) -> Response:
        """Run the turns of one request."""
        assert self._worker is not None
        self.scratch = request.scratch
        return run_turns(self._worker, request.jobs, request.memories, request.references)
