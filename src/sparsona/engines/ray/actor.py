"""One worker on a cluster: a Ray actor with its own core. This module imports no part of Ray."""

import socket
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import torch

from sparsona.engines.shipping import setup_of
from sparsona.engines.turns import Failure, Response, caught, run_turns
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.references import ReferenceStore
from sparsona.federation.worker import Job, Worker
from sparsona.message import Part
from sparsona.training.determinism import make_deterministic
from sparsona.version import __version__
from sparsona.wire import Reference

INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Sources:
    """Modules by their path below the folder; `main` is the user's script, if the payload needs it."""

    modules: Mapping[str, str] = field(default_factory=dict)
    main: str = ""

    def install(self) -> None:
        """Make these modules importable in a worker, before installed ones. The folder stays as long as the process."""
        folder = Path(tempfile.mkdtemp(prefix="sparsona-"))
        for name, text in self.modules.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        sys.path.insert(0, str(folder))
        if self.main:
            script = folder / "__main__script.py"
            script.write_text(self.main, encoding="utf-8")
            spawn.prepare({"init_main_from_path": str(script)})


def loaded_sources(payload: bytes) -> Sources:
    """Return the loaded modules that belong to no package, and the script, if the payload needs it."""
    out = {}
    for name, module in sorted(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "")
        if file.suffix == ".py" and name.partition(".")[0] not in SKIPPED and _is_own(file):
            path = name.replace(".", "/")
            out[f"{path}/__init__.py" if file.name == "__init__.py" else f"{path}.py"] = file.read_text("utf-8")
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
    needed = b"__main__" in payload and script.suffix == ".py"
    return Sources(out, script.read_text("utf-8") if needed else "")


SKIPPED = ("__main__", "__mp_main__", "sparsona")


def _is_own(file: Path) -> bool:
    """True if a file belongs neither to Python nor to an installed package."""
    standard = Path(sysconfig.get_paths()["stdlib"])
    return file.is_file() and standard not in file.parents and not set(INSTALLED) & set(file.parts)


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
