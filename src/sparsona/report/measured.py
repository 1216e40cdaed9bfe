"""A run as reports see it: what had been spent and what every client scored, at each evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparsona.experiment import read
from sparsona.method import ClientId
from sparsona.runs.about import About, read_about
from sparsona.runs.budget import Budget
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.losses import Losses
from sparsona.runs.records import ClientRecord, by_round
from sparsona.runs.scores import POINTS, summarise
from sparsona.wire import Ledger

Scores = Mapping[ClientId, float]


@dataclass(frozen=True)
class Measurement:
    """All that had been spent when clients were measured, and their scores by point."""

    round: int
    up: int
    down: int
    seconds: float
    flops: int
    test: Mapping[str, Scores]
    validation: Mapping[str, Scores]
    others: Mapping[str, Scores] = field(default_factory=dict)
    """The test scores at `pre` by the metrics that do not decide."""

    @property
    def bytes(self) -> int:
        """Bytes up and down together."""
        return self.up + self.down


@dataclass(frozen=True)
class MeasuredRun:
    """One run, finished or not. `seconds` are real ones; `traffic` is bytes (up, down) by client; `loss` says whether
    training losses rose, as in summary.json."""

    path: Path
    settings: Mapping[str, Any]
    about: About
    measurements: tuple[Measurement, ...]
    rounds: int
    up: Ledger
    down: Ledger
    traffic: Mapping[ClientId, tuple[int, int]]
    seconds: float
    finished: bool
    loss: Mapping[str, float]

    @property
    def method(self) -> str:
        """The name of the run's method."""
        return str(self.settings["method"])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.settings["seed"])

    def within(self, bytes: float = math.inf, seconds: float = math.inf) -> Measurement | None:
        """The last evaluation of all clients within `bytes` and simulated `seconds`."""
        inside = [m for m in self.measurements if m.bytes <= bytes and m.seconds <= seconds]
        return inside[-1] if inside else None

    def last(self, budget: Budget) -> Measurement | None:
        """The last evaluation of all clients within a budget."""
        return self.within(budget.bytes, budget.clock)


def mean_score(scores: Scores) -> float:
    """The mean over the clients; NaN where nobody has a score."""
    return _summary(scores, True)["mean"]


def bottom_decile(scores: Scores, higher_is_better: bool) -> float:
    """The score of the client at the bottom tenth."""
    return _summary(scores, higher_is_better)["bottom_decile"]


def _summary(scores: Scores, higher_is_better: bool) -> dict[str, float]:
    found = summarise(scores, dict.fromkeys(scores, 1), higher_is_better)
    return {key: math.nan if value is None else value for key, value in found.items()}


def measurements(
    rounds: Mapping[int, Sequence[ClientRecord]], unscored: frozenset[ClientId] = frozenset()
) -> list[Measurement]:
    """The rounds in which anybody was measured. Clients that are `unscored` count with what they spend only."""
    found: list[Measurement] = []
    up = down = flops = 0
    for number, lines in rounds.items():
        up += sum(line.up.total for line in lines)
        down += sum(line.down.total for line in lines)
        flops += sum(line.flops for line in lines)
        scored = [line for line in lines if line.client not in unscored]
        test = {p: {one.client: one.test[p] for one in scored if p in one.test} for p in POINTS}
        checked = {p: {one.client: one.validation[p] for one in scored if p in one.validation} for p in POINTS}
        if any(test.values()):
            clock = max(line.clock for line in lines)
            found.append(Measurement(number, up, down, clock, flops, test, checked, _others(scored)))
    return found


def _others(lines: Sequence[ClientRecord]) -> dict[str, dict[ClientId, float]]:
    found: dict[str, dict[ClientId, float]] = {}
    for line in lines:
        for metric, points in line.others.items():
            if "pre" in points:
                found.setdefault(metric, {})[line.client] = points["pre"][0]
    return found


def complete(found: Sequence[Measurement], point: str) -> list[Measurement]:
    """Those at which as many clients were measured at `point` as ever."""
    everyone = max((len(m.test[point]) for m in found), default=0)
    return [m for m in found if everyone and len(m.test[point]) == everyone]


def measure(folder: Path) -> MeasuredRun:
    """Read a run. The evaluations that count are those of everybody at `pre`."""
    directory = RunDirectory(folder)
    lines = directory.lines()
    losses = Losses()
    for inside in by_round(lines).values():
        losses.add(inside)
    traffic: dict[ClientId, tuple[int, int]] = {}
    for line in lines:
        sent, got = traffic.get(line.client, (0, 0))
        traffic[line.client] = sent + line.up.total, got + line.down.total
    settings, about = read(directory.experiment_file), read_about(folder)
    fewest = int(settings.get("split", {}).get("fewest", 1))
    small = frozenset(client for client, data in about.clients.items() if data.test < fewest)
    finished = directory.summary_file.exists()
    if finished:
        summary = directory.summary()
        rounds, seconds = summary["rounds"], summary["seconds"]
    else:
        progress = Checkpointer(directory.checkpoint).progress()
        rounds, seconds = progress.done, progress.seconds
    return MeasuredRun(
        path=folder,
        settings=settings,
        about=about,
        measurements=tuple(complete(measurements(by_round(lines), small), "pre")),
        rounds=rounds,
        up=sum((line.up for line in lines), Ledger()),
        down=sum((line.down for line in lines), Ledger()),
        traffic=traffic,
        seconds=seconds,
        finished=finished,
        loss=losses.told(),
    )


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """The run directories that these are or hold, each once, in the order of their names."""
    found: dict[Path, Path] = {}
    for folder in folders:
        inside = (
            [folder]
            if (folder / "experiment.toml").exists()
            else sorted(file.parent for file in folder.rglob("experiment.toml"))
        )
        for run in inside:
            if (run / "records.jsonl").exists():
                found.setdefault(run.resolve(), run)
    return list(found.values())
