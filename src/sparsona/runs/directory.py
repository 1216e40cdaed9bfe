"""A run's directory: experiment.toml, records.jsonl, summary.json, checkpoint/ and models/."""

from __future__ import annotations

import errno
import json
import logging
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sparsona.errors import InputError, RunError
from sparsona.files import check_plain, json_of, read_regular, signed, sync, write_atomically, write_new
from sparsona.method import ClientId
from sparsona.registry import suggest
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.names import file_stem
from sparsona.runs.records import ClientRecord, read_records
from sparsona.system import take_lock

log = logging.getLogger(__name__)

SUMMARY: Mapping[str, type | tuple[type, ...]] = {
    "method": str, "options": dict, "data": str, "model": str, "weights": int, "clients": int, "partition": str,
    "rounds": int, "seed": int, "metric": str, "picked": dict, "bytes": dict, "paper_bytes": dict, "flops": int,
    "simulated_seconds": (int, float), "seconds": (int, float), "peak_rss_mb": (int, float), "digest": str,
}  # fmt: skip
"""The keys of every summary.json, with their types."""
GREETINGS = "greetings.json"
"""The file of a network run that keeps the answers of its owners at the start."""


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.experiment_file = path / "experiment.toml"
        self.records = path / "records.jsonl"
        self.summary_file = path / "summary.json"
        self.checkpoint = path / "checkpoint"
        self.models = path / "models"
        self.clients_file = path / "clients.csv"
        self.diverged_file = path / "diverged.txt"

    @contextmanager
    def open(
        self, experiment: str, agreed: Callable[[Path], str], resume: bool, patience: float = 0.0
    ) -> Iterator[None]:
        """Lock the directory for one experiment, or refuse and name the fix.

        `experiment` is the experiment as TOML. `agreed` gets the file of an existing run and returns the experiment to
        continue with, which may be longer; it refuses another experiment. The directory is locked meanwhile; a process
        that still holds the lock has `patience` seconds to end.
        """
        self._check_use(resume)
        self.path.mkdir(parents=True, exist_ok=True)
        with _locked(self.path, patience):
            self._check_use(resume)
            self._check_plain()
            if not self.experiment_file.exists():
                self.write_experiment(experiment)
            elif (text := agreed(self.experiment_file)) != self.experiment_file.read_text(encoding="utf-8"):
                self.summary_file.unlink(missing_ok=True)
                self.write_experiment(text)
            self.checkpoint.mkdir(exist_ok=True)
            yield

    def write_experiment(self, text: str) -> None:
        """Write the experiment with its hash, so that a flipped bit is found on reading."""
        write_atomically(self.experiment_file, signed(text))

    def _check_use(self, resume: bool) -> None:
        if self.experiment_file.exists():
            if not resume:
                raise RunError(f"{self.path} already holds a run: add --resume to continue it, or choose another --out")
        elif self.path.exists() and (not self.path.is_dir() or set(os.listdir(self.path)) - {"experiment.toml.part"}):
            raise RunError(f"{self.path} is not a run directory: choose another --out")

    def _check_plain(self) -> None:
        """Refuse links and devices in the directory. The directory itself may be reached through a link."""
        check_plain(self.path.resolve())
        for file in (self.records, self.clients_file):
            if file.exists() and file.stat().st_nlink > 1:
                raise RunError(f"{file} has a second name (a hard link), which a run would change: copy the folder")

    @classmethod
    def around(cls, file: Path) -> RunDirectory | None:
        """Return the run whose experiment this file is; None for another experiment file."""
        there = cls(file.parent)
        same = file.name == there.experiment_file.name
        return there if same and (there.checkpoint.exists() or there.records.exists()) else None

    def need_run(self) -> None:
        """Refuse to resume a run that does not exist."""
        if not self.experiment_file.exists():
            raise RunError(f"there is no run in {self.path} to resume: check --out, or leave --resume out")

    @property
    def _again(self) -> str:
        """Return the command that continues the run."""
        return shlex.join(["sparsona", "run", str(self.experiment_file), "--out", str(self.path), "--resume"])

    def summary(self) -> dict[str, Any]:
        """Return the summary of a finished run."""
        if not self.experiment_file.exists():
            raise RunError(f"{self.path} is not a run directory: give the folder that sparsona run --out made")
        if not self.summary_file.exists():
            raise RunError(f"{self.path} is not finished: {self._again}")
        try:
            return checked_summary(json_of(read_regular(self.summary_file)))
        except (ValueError, RecursionError) as error:
            raise RunError(
                f"{self.summary_file} is damaged ({error}): to have it written again, {self._again}"
            ) from None

    def lines(self) -> list[ClientRecord]:
        """Return the records of all complete rounds; of an unfinished run, up to its last checkpoint."""
        if not self.experiment_file.exists() and not self.records.exists():
            raise RunError(f"{self.path} is not a run directory: give the folder that sparsona run --out made")
        if not self.checkpoint.exists():
            return read_records(self.records)
        progress = Checkpointer(self.checkpoint).progress()
        whole = self.summary_file.exists() and not progress.done
        return read_records(self.records, None if whole else progress.records, progress.log)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, as the last file: a run with a summary is finished."""
        if self.models.exists():
            sync([*self.models.iterdir(), self.models])
        write_atomically(self.summary_file, json.dumps(summary, indent=2, allow_nan=False) + "\n")

    def model_file(self, client: ClientId) -> Path:
        """Return the path of a client's model."""
        return self.models / f"{file_stem(client)}.safetensors"

    def save_model(self, client: ClientId, data: bytes) -> None:
        """Write one client's personal model, as :func:`sparsona.export.files.model_bytes` makes it."""
        self.models.mkdir(exist_ok=True)
        write_new(self.model_file(client), data)

    def need_model(self, client: ClientId) -> Path:
        """Return the file of a client's model; the error names the clients that have one."""
        file = self.model_file(client)
        if not file.exists():
            self.summary()
            known = sorted(unquote(path.stem) for path in self.models.glob("*.safetensors"))
            raise InputError(f"{self.path} has no client {client!r}{suggest(client, known)}")
        return file


def checked_summary(found: Any) -> dict[str, Any]:
    """Return a complete summary; raises a ValueError that names what is missing."""
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
        told = isinstance(parts, dict) and isinstance(parts.get(way), dict)
        if not all(isinstance(count, int) for count in counts) or not told:
            raise ValueError(f"the bytes {way} are missing")
    return found


@contextmanager
def _locked(path: Path, patience: float) -> Iterator[None]:
    """Hold the lock of a folder. Another process that holds it has `patience` seconds to end."""
    lock: AbstractContextManager[object] = nullcontext()
    until = time.monotonic() + patience
    while True:
        try:
            lock = take_lock(path)
        except BlockingIOError:
            if time.monotonic() < until:
                time.sleep(0.2)
                continue
            raise RunError(
                f"{path} is in use by another process: wait until it has ended, or choose another --out"
            ) from None
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                raise
            log.warning("%s is on a file system without locks: do not run two processes in it", path)
        break
    with lock:
        yield
