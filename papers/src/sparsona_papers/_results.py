"""Kept results of finished runs: one small JSON file per paper with one line per run, so that cards outlive the run
directories.

A run is identified by the digest of its settings, so old numbers of a changed case do not count. Choices are made again
from the kept trials: a new value in a grid costs its trials, and further runs only if it wins. The digest leaves out
paths of excerpts and settings of the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

from sparsona.errors import InputError
from sparsona.files import write_atomically
from sparsona_papers._differences import Summary
from sparsona_papers._paper import Case, Paper, Size, Value

FREE = ("engine", "workers", "device")
KEPT = ("method", "options", "seed", "rounds", "clients", "weights", "metric", "flops", "simulated_seconds", "seconds")


def digest_of(settings: Mapping[str, Any]) -> str:
    """Return a digest of the settings that decide a run's result.

    >>> digest_of({"data": "npz:/a/x.npz", "engine": "pool"}) == digest_of({"data": "npz:/b/x.npz"})
    True
    >>> digest_of({"method": "fedavg"}) == digest_of({"method": "local"})
    False
    """
    plain = {key: value for key, value in settings.items() if key not in FREE}
    data = str(plain.get("data", ""))
    if data.startswith("npz:"):
        plain["data"] = "npz:" + data.rpartition("/")[2]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


def machine() -> str:
    """The machine in a few words.

    >>> machine().endswith(("no GPU", "GPU"))
    True
    """
    import torch

    return f"{os.cpu_count()} cores, {'GPU' if torch.cuda.is_available() else 'no GPU'}"


def compact(summary: Summary, settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a summary that a card or a claim may need, and when and where they were made."""
    metric = summary["metric"]
    out = {key: summary[key] for key in KEPT if key in summary}
    out |= {metric: _short(summary[metric]), "settings": digest_of(settings)}
    out |= {key: {way: summary[key][way] for way in ("up", "down")} for key in ("bytes", "paper_bytes")}
    if "new_clients" in summary:
        new = summary["new_clients"]
        out["new_clients"] = {metric: _short(new[metric]), "count": new["count"], "bytes": new["bytes"]}
    out |= {key: _short(value) for key, value in more.items()}
    return {**out, "date": datetime.now(UTC).date().isoformat(), "machine": machine()}


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _short(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_short(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def results_file(results: Path | None, name: str, size: Size, seeds_from: int | None = None) -> Path | None:
    """Return the file of a paper's kept results, one per size and per choice of seeds.

    >>> str(results_file(Path("r"), "plga", "whole")), str(results_file(Path("r"), "plga", "day", 11))
    ('r/plga.json', 'r/plga-day-seeds-11.json')
    """
    if results is None:
        return None
    seeds = "" if seeds_from is None else f"-seeds-{seeds_from}"
    return results / f"{name}{'' if size == 'whole' else f'-{size}'}{seeds}.json"


@dataclass
class Results:
    """The runs that are kept of one paper, by name, in one file."""

    file: Path | None = None
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path | None) -> Results:
        """The results that a file holds; none where there is no file."""
        if file is None or not file.exists():
            return cls(file)
        try:
            return cls(file, json.loads(file.read_text(encoding="utf-8"))["runs"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is damaged ({error}): restore it, or remove it to run everything again") from None

    def find(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the run of this name if it has these settings, else another run with these settings."""
        wanted = digest_of(settings)
        named = self.runs.get(name)
        if named is not None and named["settings"] == wanted:
            return named
        return next((run for run in self.runs.values() if run.get("settings") == wanted), None)

    def choice(self, case: Case, paper: Paper) -> Value | None:
        """The value of a case's grid that validation samples choose; None while one of its trials has not been run."""
        if case.grid is None:
            return None
        trials = paper.trials(case)
        scores = list(self.tried(case, trials).values())
        if len(scores) < len(trials):
            return None
        of_each = len(trials) // len(case.grid.values)
        means = [mean(scores[start : start + of_each]) for start in range(0, len(scores), of_each)]
        return case.grid.values[max(range(len(means)), key=lambda place: (means[place], -place))]

    def tried(self, case: Case, trials: Iterable[Case]) -> dict[str, float]:
        """Return the validation scores of a case's finished trials."""
        found = {trial.name: self.find(trial.name, trial.identity) for trial in trials}
        point = case.grid.point if case.grid else ""
        return {name: run["validation"].get(point) or 0.0 for name, run in found.items() if run is not None}

    def run_of(self, case: Case, paper: Paper) -> dict[str, Any] | None:
        """Return the run of a case with its chosen setting, and the choice; None if it was not run."""
        chosen: dict[str, Any] = {}
        if case.grid is not None:
            value = self.choice(case, paper)
            if value is None:
                return None
            chosen = {"chosen": case.grid.named(value)}
            case = case.settled(value)
        found = self.find(case.name, case.identity)
        if found is None:
            return None
        return {key: inner for key, inner in found.items() if key != "chosen"} | chosen

    def adopt(self, case: Case, paper: Paper, others: Sequence[Results]) -> bool:
        """Copy a case and its trials from other results if these lack them; return whether the case is kept then."""
        if case.grid is not None:
            for trial in paper.trials(case):
                self.adopt(trial, paper, others)
            value = self.choice(case, paper)
            return value is not None and self.adopt(case.settled(value), paper, others)
        if self.find(case.name, case.identity) is not None:
            return True
        found = next(filter(None, (other.find(case.name, case.identity) for other in others)), None)
        if found is not None:
            self.add(case.name, found)
        return found is not None

    def add(self, name: str, run: dict[str, Any]) -> None:
        """Keep the result of a run, in the file too."""
        self.replace({**self.runs, name: run})

    def replace(self, runs: Mapping[str, dict[str, Any]]) -> None:
        """Keep these runs and no others."""
        self.runs = dict(runs)
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            lines = [f"{json.dumps(key)}: {json.dumps(self.runs[key], sort_keys=True)}" for key in sorted(self.runs)]
            write_atomically(self.file, '{"runs": {\n' + ",\n".join(lines) + "\n}}\n")
