"""What runs on a cluster: one worker, an actor of Ray with a core of its own. It imports no part of Ray itself."""

from __future__ import annotations

import socket
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sparsona.engines.ray.sources import Sources
from sparsona.engines.shipping import setup_of
from sparsona.engines.turns import Failure, Response, caught, run_turn
from sparsona.errors import MissingReference
from sparsona.federation.references import HOT_BYTES, ReferenceStore
from sparsona.federation.worker import Job, Outcome, Worker
from sparsona.message import Part
from sparsona.runs.store import Ticket
from sparsona.system import peak_rss_kb
from sparsona.training.determinism import make_deterministic
from sparsona.version import __version__
from sparsona.wire import Reference


@dataclass(frozen=True)
class SharedFiles:
    """The clients' states are files that the worker reads and writes itself, and so are the `references`.

    `mark` is a file that the server has made: who does not see it has another file system.
    """

    tickets: tuple[Ticket, ...]
    references: Path
    mark: Path

    def seen(self) -> bool:
        """Whether these files are here. A file system over a network may show new ones late."""
        return self.mark.exists() and all(one.read is None or one.read.exists() for one in self.tickets)


@dataclass(frozen=True)
class InlineStates:
    """The clients' states come with the request and go back with the response; `references` are named, and follow."""

    states: tuple[bytes | None, ...]
    references: tuple[bytes, ...]


@dataclass(frozen=True)
class RemoteRequest:
    """Clients' turns to run. A piece of a downlink that is a number is the argument of that number which follows: what
    is large and alike for many clients is in the object store once."""

    jobs: tuple[Job, ...]
    downs: tuple[tuple[bytes | int, ...], ...]
    states: SharedFiles | InlineStates


@dataclass(frozen=True)
class FilesNotShared:
    """The worker does not see the server's files: it must be handed the states."""


@dataclass(frozen=True)
class Ready:
    """The worker has its set-up: the host that it runs on, what it runs, and the instruction set of its torch."""

    host: str
    version: str
    instructions: str


class RemoteWorker:
    """One worker: the same turns as everywhere, on data in the memory that all workers of a node share."""

    def __init__(self, device: str, sources: Sources, *arrays: Any) -> None:
        make_deterministic()
        # No worker may write to what a node's workers share, and torch says so for each array.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        self._worker = caught(lambda: _worker(device, sources, arrays))

    def ready(self) -> Ready | Failure:
        """Whether the worker has its set-up, or why not."""
        if isinstance(self._worker, Failure):
            return self._worker
        return Ready(socket.gethostname(), __version__, torch.backends.cpu.get_cpu_capability())

    def work(self, request: RemoteRequest, *sent: Any) -> Response | FilesNotShared | Failure:
        """Run the turns. `sent` holds large pieces of downlinks, and the parts of each reference that is handed over
        at its end."""
        states = request.states
        if isinstance(states, SharedFiles) and not states.seen():
            return FilesNotShared()
        done = caught(lambda: self._respond(request, sent))
        missing = isinstance(done, Failure) and isinstance(done.error, MissingReference)
        return FilesNotShared() if missing and isinstance(states, SharedFiles) else done

    def _respond(self, request: RemoteRequest, sent: tuple[Any, ...]) -> Response:
        assert isinstance(self._worker, Worker)
        states, references = request.states, self._worker.references
        if isinstance(states, SharedFiles):
            references.files.limit = HOT_BYTES
            references.read_from(states.references, request.jobs[0].stamp.round)
        else:
            # They are in the node's object store, and there is no file to read again.
            references.files.limit = sys.maxsize
            given: tuple[Mapping[str, Part], ...] = sent[len(sent) - len(states.references) :]
            for name, parts in zip(states.references, given, strict=True):
                references.add(Reference(parts, name))
        outcomes: list[Outcome] = []
        kept: list[str | bytes | None] = []
        for number, job in enumerate(request.jobs):
            down = tuple(sent[piece] if isinstance(piece, int) else piece for piece in request.downs[number])
            full = replace(job, down=down)
            if isinstance(states, SharedFiles):
                outcome, state = run_turn(self._worker, full, states.tickets[number].state())
                kept.append(states.tickets[number].keep(state))
            else:
                outcome, state = run_turn(self._worker, full, states.states[number])
                kept.append(state)
            outcomes.append(outcome)
        if isinstance(states, InlineStates):
            references.files.keep(())
        return Response(tuple(outcomes), tuple(kept), peak_rss_kb())


def _worker(device: str, sources: Sources, arrays: Any) -> Worker:
    sources.install()
    return Worker(replace(setup_of(arrays), device=device), ReferenceStore(reads_only=True))
