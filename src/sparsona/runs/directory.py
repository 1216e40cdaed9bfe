"""A run's directory: experiment.toml, records.jsonl, summary.json, checkpoint/ and models/."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from sparsona.errors import InputError, RunError
from sparsona.experiment import Experiment, build, read, to_toml
from sparsona.method import ClientId
from sparsona.registry import suggest
from sparsona.runs.checkpoint import write_atomically
from sparsona.runs.records import ClientRecord, _lines

log = logging.getLogger(__name__)


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

    def open(self, experiment: Experiment, resume: bool) -> None:
        """Take the directory for `experiment`, or refuse with what to do instead."""
        if self.experiment_file.exists():
            if not resume:
                raise RunError(f"{self.path} already holds a run: add --resume to continue it, or choose another --out")
            self._check_same(experiment)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise RunError(f"{self.path} is not a run directory: choose another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.experiment_file.exists():
            write_atomically(self.experiment_file, to_toml(experiment))
        self.checkpoint.mkdir(exist_ok=True)

    @classmethod
    def around(cls, file: Path) -> RunDirectory | None:
        """The run whose experiment this file is, None where it is an experiment file like any other."""
        there = cls(file.parent)
        same = file.name == there.experiment_file.name
        return there if same and (there.checkpoint.exists() or there.records.exists()) else None

    def need_run(self) -> None:
        """Refuse to resume what is not there."""
        if not self.experiment_file.exists():
            raise RunError(f"there is no run in {self.path} to resume: check --out, or leave --resume out")

    def _check_same(self, experiment: Experiment) -> None:
        """Refuse another experiment. More rounds are the same one for longer: an earlier end is taken back."""
        there, _ = build(read(self.experiment_file), str(self.experiment_file))
        differs = experiment.same_work(there)
        if differs is not None:
            raise RunError(
                f"{self.path} belongs to another experiment ({differs} differs): choose another --out, "
                f"or run {self.experiment_file} --resume"
            )
        if experiment.rounds < there.rounds:
            raise RunError(
                f"{self.path} holds a run of {there.rounds} rounds, {experiment.rounds} are asked for: "
                f"give --rounds {there.rounds} or more, or choose another --out"
            )
        if experiment.rounds > there.rounds:
            log.warning(
                "the run goes on from %d to %d rounds; what depends on their number sees the new one from now on",
                there.rounds,
                experiment.rounds,
            )
            self.summary_file.unlink(missing_ok=True)
            write_atomically(self.experiment_file, to_toml(experiment))

    def summary(self) -> dict[str, Any]:
        """The summary of a finished run."""
        if not self.experiment_file.exists():
            raise RunError(f"{self.path} is not a run directory: give the folder that sparsona run --out made")
        if not self.summary_file.exists():
            raise RunError(
                f"{self.path} is not finished: sparsona run {self.experiment_file} --out {self.path} --resume"
            )
        try:
            found: dict[str, Any] = json.loads(self.summary_file.read_text(encoding="utf-8"))
            if "digest" not in found:
                raise ValueError("it is not complete")
        except (ValueError, TypeError) as error:
            raise RunError(
                f"{self.summary_file} is damaged ({error}): to have it written again, "
                f"sparsona run {self.experiment_file} --out {self.path} --resume"
            ) from None
        return found

    def lines(self) -> list[ClientRecord]:
        """The records of a finished run."""
        return _lines(self.records, self.records.stat().st_size if self.records.exists() else 0)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_atomically(self.summary_file, json.dumps(summary, indent=2, allow_nan=False) + "\n")

    def model_file(self, client: ClientId) -> Path:
        return self.models / f"{quote(client, safe='')}.safetensors"

    def save_model(self, client: ClientId, data: bytes) -> None:
        """One client's personal model, as :func:`sparsona.export.files.model_bytes` makes it."""
        self.models.mkdir(exist_ok=True)
        self.model_file(client).write_bytes(data)

    def need_model(self, client: ClientId) -> Path:
        """The file of a client's model, or an error that says who has one."""
        file = self.model_file(client)
        if not file.exists():
            self.summary()
            known = sorted(unquote(path.stem) for path in self.models.glob("*.safetensors"))
            raise InputError(f"{self.path} has no client {client!r}{suggest(client, known)}")
        return file
