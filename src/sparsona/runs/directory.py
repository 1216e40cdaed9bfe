"""A run's directory: experiment.toml, records.jsonl, summary.json, checkpoint/ and models/."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from sparsona.errors import InputError, RunError
from sparsona.files import check_plain, read_regular, sync, write_atomically, write_new
from sparsona.layout import Layout
from sparsona.method import ClientId, Model
from sparsona.registry import suggest
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.names import file_stem
from sparsona.runs.records import ClientRecord, read_records
from sparsona.runs.state import pack

log = logging.getLogger(__name__)

SUMMARY: Mapping[str, type | tuple[type, ...]] = {
    "method": str, "options": dict, "data": str, "model": str, "weights": int, "clients": int, "partition": str,
    "rounds": int, "seed": int, "metric": str, "picked": dict, "bytes": dict, "paper_bytes": dict, "flops": int,
    "simulated_seconds": (int, float), "seconds": (int, float), "peak_rss_mb": (int, float), "digest": str,
}  # fmt: skip
"""What every summary.json holds, and of which type."""


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.experiment_file = path / "experiment.toml"
        self.records = path / "records.jsonl"
        self.summary_file = path / "summary.json"
        self.checkpoint = path / "checkpoint"
        self.models = path / "models"

    @contextmanager
    def open(self, experiment: str, differs: Callable[[Path], str | None], resume: bool) -> Iterator[None]:
        """Hold the directory for one experiment, or refuse with what to do instead.

        `experiment` is the experiment as TOML. `differs` names the first setting in which the experiment of a file is
        another one, None where it is the same work. Nobody else can open the directory meanwhile.
        """
        self._check_use(resume)
        self.path.mkdir(parents=True, exist_ok=True)
        with _locked(self.path):
            self._check_use(resume)
            self._check_plain()
            if not self.experiment_file.exists():
                write_atomically(self.experiment_file, experiment)
            elif (setting := differs(self.experiment_file)) is not None:
                raise RunError(
                    f"{self.path} belongs to another experiment ({setting} differs): choose another --out, "
                    f"or run {self.experiment_file} --resume"
                )
            self.checkpoint.mkdir(exist_ok=True)
            yield

    def _check_use(self, resume: bool) -> None:
        if self.experiment_file.exists():
            if not resume:
                raise RunError(f"{self.path} already holds a run: add --resume to continue it, or choose another --out")
        elif self.path.exists() and (not self.path.is_dir() or set(os.listdir(self.path)) - {"experiment.toml.part"}):
            raise RunError(f"{self.path} is not a run directory: choose another --out")

    def _check_plain(self) -> None:
        """Refuse links and devices in the directory. The directory itself may be reached through a link."""
        check_plain(self.path.resolve())
        if self.records.exists() and self.records.stat().st_nlink > 1:
            raise RunError(f"{self.records} has a second name (a hard link), which a run would change: copy the folder")

    @classmethod
    def around(cls, file: Path) -> RunDirectory | None:
        """The run whose experiment this file is, None where it is an experiment file like any other."""
        there = cls(file.parent)
        same = file.name == there.experiment_file.name
        return there if same and (there.checkpoint.exists() or there.records.exists()) else None

    def summary(self) -> dict[str, Any]:
        """The summary of a finished run."""
        if not self.experiment_file.exists():
            raise RunError(f"{self.path} is not a run directory: give the folder that sparsona run --out made")
        if not self.summary_file.exists():
            raise RunError(
                f"{self.path} is not finished: sparsona run {self.experiment_file} --out {self.path} --resume"
            )
        try:
            return checked_summary(json.loads(read_regular(self.summary_file)))
        except (ValueError, RecursionError) as error:
            raise RunError(
                f"{self.summary_file} is damaged ({error}): to have it written again, "
                f"sparsona run {self.experiment_file} --out {self.path} --resume"
            ) from None

    def lines(self) -> list[ClientRecord]:
        """The records of the rounds that are complete; of a run that goes on, those of its last checkpoint."""
        if not self.experiment_file.exists() and not self.records.exists():
            raise RunError(f"{self.path} is not a run directory: give the folder that sparsona run --out made")
        whole = self.summary_file.exists() or not self.checkpoint.exists()
        return read_records(self.records, None if whole else Checkpointer(self.checkpoint).progress().records)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Call it last: a run with a summary is finished, and its models are on the disk."""
        if self.models.exists():
            sync([*self.models.iterdir(), self.models])
        write_atomically(self.summary_file, json.dumps(summary, indent=2, allow_nan=False) + "\n")

    def model_file(self, client: ClientId) -> Path:
        return self.models / f"{file_stem(client)}.safetensors"

    def save_model(self, client: ClientId, model: Model, layout: Layout, notes: Mapping[str, str]) -> None:
        """One client's personal model: its tensors by name, or the declared state of its predictor."""
        self.models.mkdir(exist_ok=True)
        if isinstance(model, np.ndarray):
            data = bytes(save(layout.named(model), metadata={**notes, "client": client}))
        else:
            data = pack(model)
        write_new(self.model_file(client), data)

    def export(self, client: ClientId, to: Path) -> None:
        """Copy a client's model out, as .safetensors or .npz."""
        if not self.model_file(client).exists():
            self.summary()
            known = sorted(unquote(path.stem) for path in self.models.glob("*.safetensors"))
            raise InputError(f"{self.path} has no client {client!r}{suggest(client, known)}")
        if to.suffix not in (".safetensors", ".npz"):
            raise InputError(f"cannot write {to}: the name must end in .safetensors or .npz")
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            if to.suffix == ".safetensors":
                to.write_bytes(read_regular(self.model_file(client)))
                return
            with safe_open(self.model_file(client), framework="numpy") as tensors:
                np.savez(to, **{name: tensors.get_tensor(name) for name in tensors.keys()})  # noqa: SIM118
        except SafetensorError as error:
            raise RunError(f"{self.model_file(client)} is damaged: {error}") from None


def checked_summary(found: Any) -> dict[str, Any]:
    """A summary that holds all that is read from one; else a ValueError that names what is missing."""
    if not isinstance(found, dict):
        raise ValueError("it is not a table of values")
    for key, kind in SUMMARY.items():
        if not isinstance(found.get(key), kind):
            raise ValueError(f"{key} is missing or of another type")
    if not isinstance(found.get(found["metric"]), dict):
        raise ValueError(f"the scores of {found['metric']} are missing")
    parts = found["bytes"].get("parts")
    for way in ("up", "down"):
        counts = [found["bytes"].get(way), found["paper_bytes"].get(way)]
        if not all(isinstance(count, int) for count in counts) or not isinstance((parts or {}).get(way), dict):
            raise ValueError(f"the bytes {way} are missing")
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a folder. The kernel frees it when the process ends, in whatever way: no lock is ever stale."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"{path} is in use by another process: wait until it has ended, or choose another --out"
            ) from None
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                raise
            log.warning("%s is on a file system without locks: do not run two processes in it", path)
        yield
    finally:
        os.close(handle)
