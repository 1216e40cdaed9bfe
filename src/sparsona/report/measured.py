"""A run as reports see it: at each evaluation the costs so far, and every client's scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.experiment import read
from sparsona.method import ClientId
from sparsona.metrics import in_percent
from sparsona.registry import split_spec
from sparsona.runs.about import About, read_about
from sparsona.runs.budget import Budget
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import ClientRecord, by_round
from sparsona.runs.scores import POINTS, Losses, exploded, summarise
from sparsona.wire import Ledger

Scores = Mapping[ClientId, float]


@dataclass(frozen=True)
class Measurement:
    """The costs up to an evaluation, and the clients' scores by point."""

    round: int
    up: int
    down: int
    seconds: float
    flops: int
    test: Mapping[str, Scores]
    validation: Mapping[str, Scores]
    others: Mapping[str, Scores] = field(default_factory=dict)
    """The test scores at `pre` by the further metrics."""

    @property
    def bytes(self) -> int:
        """Return the bytes up and down together."""
        return self.up + self.down


@dataclass(frozen=True)
class MeasuredRun:
    """One run, finished or not.

    `seconds` are real time; `traffic` is bytes (up, down) by client. `loss` says whether training losses rose, as in
    summary.json.
    """

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
    summary: Mapping[str, Any] = field(default_factory=dict)
    """The content of summary.json; empty if the run has not ended."""
    diverged: str = ""
    """The reason why the run has diverged; its scores then mean nothing. Empty if it has not."""

    @property
    def method(self) -> str:
        """Return the name of the run's method."""
        return str(self.settings["method"])

    @property
    def seed(self) -> int:
        """Return the run's seed."""
        return int(self.settings["seed"])

    def within(self, bytes: float = math.inf, seconds: float = math.inf) -> Measurement | None:
        """Return the costs within `bytes` and simulated `seconds`, and the scores of the models that clients keep."""
        inside = [m for m in self.measurements if m.bytes <= bytes and m.seconds <= seconds]
        if not inside or self.keep == "last":
            return inside[-1] if inside else None
        return kept_scores(inside, self.keep == "best-per-client", self.about.higher_is_better)

    @property
    def keep(self) -> str:
        """Return which of a client's models it keeps in the end."""
        return str(self.settings.get("evaluation", {}).get("keep", "last"))

    @property
    def improving(self) -> bool:
        """True if the validation score was still improving at the end.

        The last quarter of the evaluations must beat the quarter before by more than their noise. It must also beat it
        by a fifth of a point (or one part in 200 of a score that is not a share).
        """
        sign = 1 if self.about.higher_is_better else -1
        scores = [sign * mean_score(m.validation["pre"]) for m in self.measurements]
        quarter = len(scores) // 4
        if quarter < 3 or (self.finished and self.rounds < int(self.settings["rounds"])):
            return False  # too short to tell, or stopped because it stalled
        before, late = (np.array(scores[from_:to]) for from_, to in ((-2 * quarter, -quarter), (-quarter, None)))
        gain, noise = late.mean() - before.mean(), max(before.std(), late.std()) / math.sqrt(quarter)
        least = 0.002 if in_percent(self.about.metric) else 0.005 * abs(before.mean())
        return bool(gain > max(2 * noise, least))

    def last(self, budget: Budget) -> Measurement | None:
        """Return the last evaluation of all clients within a budget."""
        return self.within(budget.bytes, budget.clock)


def kept_scores(found: Sequence[Measurement], per_client: bool, higher_is_better: bool) -> Measurement:
    """Return the scores of the evaluations with the best validation score, and the costs of all evaluations.

    The best evaluation is chosen for all clients together or `per_client`.

    >>> first = Measurement(1, 5, 5, 1.0, 9, {"pre": {"a": 0.8, "b": 0.7}}, {"pre": {"a": 0.9, "b": 0.4}})
    >>> second = Measurement(2, 9, 9, 2.0, 18, {"pre": {"a": 0.6, "b": 0.9}}, {"pre": {"a": 0.5, "b": 0.5}})
    >>> kept = kept_scores((first, second), False, True)
    >>> kept.round, kept.test["pre"], kept_scores((first, second), True, True).test["pre"]
    (2, {'a': 0.8, 'b': 0.7}, {'a': 0.8, 'b': 0.9})
    """
    sign = 1 if higher_is_better else -1

    def best(point: str, client: ClientId) -> Measurement:
        def rate(m: Measurement) -> float:
            checked = m.validation.get(point, {})
            score = checked.get(client, math.nan) if per_client else mean_score(checked)
            return -math.inf if math.isnan(score) else sign * score

        measured = [m for m in found if client in m.test[point]]
        top = max(measured, key=rate)
        return measured[-1] if rate(top) == -math.inf else top

    last = found[-1]
    source = {p: {client: best(p, client) for client in last.test[p]} for p in last.test}
    return replace(
        last,
        test={p: {k: m.test[p][k] for k, m in of.items()} for p, of in source.items()},
        validation={p: {k: m.validation[p][k] for k, m in source[p].items()} for p in last.validation},
        others={
            metric: {k: m.others[metric][k] for k, m in source["pre"].items() if k in m.others.get(metric, {})}
            for metric in last.others
        },
    )


def mean_score(scores: Scores) -> float:
    """Return the mean over the clients; NaN if no client has a score."""
    found = summarise(scores, dict.fromkeys(scores, 1), True)["mean"]
    return math.nan if found is None else found


def bottom_decile(scores: Scores, higher_is_better: bool) -> float:
    """Return the score of the client at the bottom tenth."""
    found = summarise(scores, dict.fromkeys(scores, 1), higher_is_better)["bottom_decile"]
    return math.nan if found is None else found


def measurements(
    rounds: Mapping[int, Sequence[ClientRecord]], unscored: frozenset[ClientId] = frozenset()
) -> list[Measurement]:
    """Return the rounds in which any client was measured. Of `unscored` clients only the costs count."""
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
            others: dict[str, dict[ClientId, float]] = {}
            for one, metric in [(line, name) for line in scored for name in line.others]:
                if "pre" in one.others[metric]:
                    others.setdefault(metric, {})[one.client] = one.others[metric]["pre"][0]
            clock = max(line.clock for line in lines)
            found.append(Measurement(number, up, down, clock, flops, test, checked, others))
    return found


def complete(found: Sequence[Measurement], point: str) -> list[Measurement]:
    """Return the measurements with the largest number of clients at `point`."""
    everyone = max((len(m.test[point]) for m in found), default=0)
    return [m for m in found if everyone and len(m.test[point]) == everyone]


def measure(folder: Path) -> MeasuredRun:
    """Read a run. Only the evaluations of all clients at `pre` count."""
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
    file, diverged = directory.diverged_file, ""
    if file.is_file():
        diverged = file.read_text(encoding="utf-8", errors="replace").strip()[:500]
    finished = directory.summary_file.exists()
    summary = directory.summary() if finished else {}
    if finished:
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
        summary=summary,
        diverged=diverged or exploded(losses.told()),
    )


def same_clients(runs: Sequence[MeasuredRun]) -> bool:
    """True if all runs have the same clients. Owners are the same even if a seed splits their rows anew."""
    owned = all(split_spec(str(run.settings["partition"]))[0] == "groups" for run in runs)
    return len({repr(sorted(run.about.clients if owned else run.about.clients.items())) for run in runs}) == 1


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the run directories among or below `folders`, each once; those below a folder are sorted."""
    found: dict[Path, Path] = {}
    for folder in folders:
        own = (folder / "experiment.toml").exists()
        for run in [folder] if own else sorted(file.parent for file in folder.rglob("experiment.toml")):
            if (run / "records.jsonl").exists() or (run / "diverged.txt").exists():
                found.setdefault(run.resolve(), run)
    return list(found.values())
