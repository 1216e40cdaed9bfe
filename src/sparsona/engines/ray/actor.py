"""One worker on a cluster: a Ray actor with its own core. This module imports no part of Ray."""

from __future__ import annotations

import socket
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from sparsona.engines.ray.sources import Sources
from sparsona.engines.shipping import setup_of
from sparsona.engines.turns import Failure, Response, caught, run_turns
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.references import ReferenceStore
from sparsona.federation.worker import Job, Worker
from sparsona.message import Part
from sparsona.training.determinism import make_deterministic
from sparsona.version import __version__
from sparsona.wire import Reference


@dataclass(frozen=True)
class RemoteRequest:
    """Clients' turns to run, with the clients' memories and the names of the `references` of their downlinks.

    A piece of a downlink that is a number stands for the argument of that number. So a large piece that many clients
    share is in the object store once. The parts of the references are the last arguments.
    """

    jobs: tuple[Job, ...]
    downs: tuple[tuple[bytes | int, ...], ...]
    memories: tuple[ClientMemory | None, ...]
    references: tuple[bytes, ...]


@dataclass(frozen=True)
class Ready:
    """The worker has its set-up: its host, its version of Sparsona, and the instruction set of its torch."""

    host: str
    version: str
    instructions: str


class RemoteWorker:
    """One worker: the same turns as in every engine, on data in the memory that all workers of a node share."""

    def __init__(self, device: str, sources: Sources, *arrays: Any) -> None:
        make_deterministic()
        # A worker must not write to the shared memory of its node, and torch warns of that for each array.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        self._worker = caught(lambda: _worker(device, sources, arrays))

    def ready(self) -> Ready | Failure:
        """Return the facts about the worker once it has its set-up, or the failure."""
        if isinstance(self._worker, Failure):
            return self._worker
        return Ready(socket.gethostname(), __version__, torch.backends.cpu.get_cpu_capability())

    def work(self, request: RemoteRequest, *sent: Any) -> Response | Failure:
        """Run the turns. `sent` holds large pieces of downlinks, then the parts of each reference."""
        return caught(lambda: self._respond(request, sent))

    def _respond(self, request: RemoteRequest, sent: tuple[Any, ...]) -> Response:
        assert isinstance(self._worker, Worker)
        parts: tuple[Mapping[str, Part], ...] = sent[len(sent) - len(request.references) :]
        references = [Reference(own, name) for own, name in zip(parts, request.references, strict=True)]
        jobs = [
            replace(job, down=tuple(sent[piece] if isinstance(piece, int) else piece for piece in down))
            for job, down in zip(request.jobs, request.downs, strict=True)
        ]
        return run_turns(self._worker, jobs, request.memories, references)


def _worker(device: str, sources: Sources, arrays: Any) -> Worker:
    sources.install()
    return Worker(replace(setup_of(arrays), device=device), ReferenceStore(sys.maxsize))
