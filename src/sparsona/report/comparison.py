"""Methods side by side: their scores over seeds, the clients that they help, and their costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sparsona.errors import InputError
from sparsona.experiment import AUTO, flatten
from sparsona.method import ClientId
from sparsona.methods import METHODS
from sparsona.report.command import MACHINE
from sparsona.report.measured import MeasuredRun, Measurement, Scores, bottom_decile, mean_score
from sparsona.report.statistics import Interval, interval
from sparsona.report.verdicts import Verdict, verdicts
from sparsona.runs.budget import Budget


def group_runs(runs: Sequence[MeasuredRun]) -> dict[str, list[MeasuredRun]]:
    """Return the runs by label: the method's name, and settings that distinguish it from others of the same name."""
    first = runs[0]
    for run in runs:
        for what, one, other in (
            ("data set", first.settings["data"], run.settings["data"]),
            ("metric", first.about.metric, run.about.metric),
        ):
            if one != other:
                raise InputError(f"{first.path} and {run.path} differ in their {what}: report them apart")
    groups: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        groups.setdefault(repr(sorted(_work(run).items())), []).append(run)
    settings = [_work(group[0]) for group in groups.values()]
    labels = [_label(own, settings) for own in settings]
    return {
        label if labels.count(label) == 1 else f"{label} ({group[0].path.name})": sorted(group, key=lambda r: r.seed)
        for label, group in zip(labels, groups.values(), strict=True)
    }


def _work(run: MeasuredRun) -> dict[str, Any]:
    """Return the settings that decide the result, apart from chance (also a learning rate chosen per seed)."""
    found = {key: value for key, value in flatten(run.settings).items() if key not in (*MACHINE, "seed")}
    return found if run.about.rate is None else {**found, "training.lr": AUTO}


def _label(own: Mapping[str, Any], among: Sequence[Mapping[str, Any]]) -> str:
    """Return the method's name, with the settings in which it differs from others of its name.

    >>> one, other = {"method": "fedprox", "options.mu": 0.1}, {"method": "fedprox", "options.mu": 0.5}
    >>> _label(one, [one, other]), _label(one, [one])
    ('fedprox:mu=0.1', 'fedprox')
    >>> one, other = {"method": "fedavg", "personal.pool": []}, {"method": "fedavg", "personal.pool": ["own", "alone"]}
    >>> _label(one, [one, other]), _label(other, [one, other])
    ('fedavg', 'fedavg:pool=own+alone')
    """
    alike = [settings for settings in among if settings["method"] == own["method"]]
    keys = sorted({key for one in alike for key in one if any(one.get(key) != other.get(key) for other in alike)})
    told = [f"{key.rpartition('.')[2]}={_joined(own[key])}" for key in keys if own.get(key, []) != []]
    return f"{own['method']}:{','.join(told)}" if told else str(own["method"])


def _joined(value: Any) -> str:
    """Return a setting as a contender of ``sparsona compare`` names it: a pool is ``trees+shared``."""
    names = isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    return "+".join(value) if names else str(value)


LOCAL = "local"
"""The baseline of training alone that every comparison has."""


def trains_alone(method: str) -> bool:
    """True if the clients of this method train alone.

    >>> trains_alone("local"), trains_alone("fedavg"), trains_alone("MyMethod")
    (True, False, False)
    """
    return method in METHODS.names() and METHODS.get(method).alone


@dataclass(frozen=True)
class ValidationLead:
    """The mean lead over the best baseline alone on validation data; `half` is what chance may explain (95 %).

    `rows` are the validation rows of all clients. From `SEEDS` seeds on, chance is the spread between seeds. With fewer
    seeds, or seeds that do not redraw the rows, it is at least the sampling error of an accuracy. For another metric it
    is then at least the spread between clients.
    """

    mean: float
    half: float
    rows: int
    seeds: int

    @property
    def clear(self) -> bool:
        """True if chance is unlikely to explain the lead."""
        return self.mean > self.half


@dataclass(frozen=True)
class ComparisonRow:
    """One method over its seeds. Scores are means over clients; `gain` is paired with the best baseline alone by seed.

    `worse_off` is the share of clients that are worse off than alone: by their `verdicts`, or without these the share
    of lower scores over all seeds. Bytes, operations and times are means over the seeds. `at_equal` is the score at the
    total traffic of the thriftiest method with the same seed. `seconds` are real time, NaN if a run has continued after
    the evaluation that counts.
    """

    label: str
    seeds: int
    pre: Interval | None = None
    post: Interval | None = None
    validation: Interval | None = None
    gain: Interval | None = None
    decile: float = math.nan
    worse_off: float | None = None
    up: float = math.nan
    down: float = math.nan
    at_equal: Interval | None = None
    flops: float = math.nan
    simulated: float = math.nan
    seconds: float = math.nan
    gains: tuple[float, ...] = ()
    """Each client's gain over the best baseline alone, over all seeds."""
    lead: ValidationLead | None = None
    alone: bool = False
    """True if its clients train alone."""
    others: Mapping[str, Interval | None] = field(default_factory=dict)
    """The scores at `pre` by the further metrics."""
    verdicts: tuple[Verdict, ...] = ()
    """Each client against training alone, by a paired test on its test rows; empty if the runs keep no answers."""
    diverged: str = ""
    """The reason why a run of it has diverged; the row then has no score and no cost. Empty if none has."""
    improving: bool = False
    """True if most of its runs were still improving when they ended."""

    @property
    def state(self) -> str:
        """Return the remark for the label: "diverged", "still improving" or empty."""
        return "diverged" if self.diverged else "still improving" if self.improving else ""

    @property
    def better_off(self) -> float | None:
        """Return the share of clients that a test shows to be better off than alone; None without verdicts."""
        return _share([one.word == "better" for one in self.verdicts])

    @property
    def bytes(self) -> float:
        """Return the bytes up and down together."""
        return self.up + self.down


@dataclass(frozen=True)
class Comparison:
    """The rows in the order of the given methods; `at_equal` was taken at `equal_bytes`, in the mean.

    `alone` is the label of the best baseline alone on validation data, with which joining is compared. It is empty
    without such a run.
    """

    metric: str
    higher_is_better: bool
    rows: tuple[ComparisonRow, ...]
    equal_bytes: float | None
    alone: str = ""
    redrawn: bool = True
    """True if a seed redraws the test rows, so that an interval over seeds covers their choice, too."""
    constant: float | None = None
    """The test score of the constant answer, the mean over clients and seeds; None if unknown."""

    @property
    def best(self) -> ComparisonRow:
        """Return the row with the best mean score on validation data; of equals the one with the least traffic."""
        return self._best_of(self.rows)

    @property
    def best_joined(self) -> ComparisonRow | None:
        """Return the best row whose clients do not train alone; None if there is none, or all have diverged."""
        joined = [row for row in self.rows if not row.alone and not row.diverged]
        return self._best_of(joined) if joined else None

    def _best_of(self, rows: Sequence[ComparisonRow]) -> ComparisonRow:
        sign = 1 if self.higher_is_better else -1
        sound = [row for row in rows if not row.diverged] or rows
        rated = [row for row in sound if row.validation is not None] or sound

        def rate(row: ComparisonRow) -> tuple[float, float]:
            return sign * row.validation.mean if row.validation else -math.inf, 0.0 if row.diverged else -row.bytes

        return max(rated, key=rate)


def compare(groups: Mapping[str, Sequence[MeasuredRun]], budget: Budget) -> Comparison:
    """Return a row for each group of runs that differ only in their seeds."""
    runs = [run for group in groups.values() if not _why_diverged(group) for run in group]
    first = next(run for group in groups.values() for run in group)
    about = first.about
    best = best_alone(groups, budget)
    alone = {key_of(run): run for run in groups.get(best, ())}
    equal: dict[tuple[str, ...], float] = {}
    for run in runs:
        sent = _spent(run, budget).bytes if budget.mb is None else budget.bytes
        if sent:
            equal[key_of(run)] = min(sent, equal.get(key_of(run), math.inf))
    rows = [_row(label, group, alone, budget, equal, about.higher_is_better) for label, group in groups.items()]
    redrawn = not str(first.settings.get("split", {}).get("by", "")).startswith("time:")
    thriftiest = _mean([*equal.values()]) if equal else None
    constants = [told["mean"] for run in runs if (told := run.summary.get("constant")) and told["mean"] is not None]
    constant = _mean(constants) if constants else None
    return Comparison(about.metric, about.higher_is_better, tuple(rows), thriftiest, best, redrawn, constant)


def best_alone(groups: Mapping[str, Sequence[MeasuredRun]], budget: Budget) -> str:
    """Return the label of the best baseline alone on validation data; empty if there is none.

    A baseline that has diverged does not count.
    """
    ways = {
        label: group for label, group in groups.items() if trains_alone(group[0].method) and not _why_diverged(group)
    }

    def score(label: str) -> float:
        ends = [end for run in ways[label] if (end := run.last(budget)) is not None]
        found = _mean([mean_score(end.validation["pre"]) for end in ends])
        sign = 1 if ways[label][0].about.higher_is_better else -1
        return sign * found if math.isfinite(found) else -math.inf

    return max(ways, key=lambda label: (score(label), label == LOCAL), default="")


def key_of(run: MeasuredRun) -> tuple[str, ...]:
    """Return a key that is equal for runs with the same clients and the same data."""
    return tuple(str(run.settings[name]) for name in ("data", "partition", "clients", "seed", "split", "new_clients"))


def gains(scores: Scores, alone: Scores, higher_is_better: bool) -> dict[ClientId, float]:
    """Return each client's gain over training alone, for clients that are measured in both.

    >>> gains({"a": 0.75, "b": 0.5}, {"a": 0.5, "b": 0.75, "c": 1.0}, True)
    {'a': 0.25, 'b': -0.25}
    """
    sign = 1 if higher_is_better else -1
    both = {client: sign * (score - alone[client]) for client, score in scores.items() if client in alone}
    return {client: value for client, value in both.items() if math.isfinite(value)}


def _row(
    label: str,
    group: Sequence[MeasuredRun],
    alone: Mapping[tuple[str, ...], MeasuredRun],
    budget: Budget,
    equal: Mapping[tuple[str, ...], float],
    higher: bool,
) -> ComparisonRow:
    alone_too = trains_alone(group[0].method)
    if reason := _why_diverged(group):
        return ComparisonRow(label, len(group), alone=alone_too, diverged=reason)

    def whole_run(run: MeasuredRun) -> bool:
        """True if the evaluation that counts is the last one, which the kept answers belong to."""
        end = run.measurements[-1]
        return run.finished and end.bytes <= budget.bytes and end.seconds <= budget.clock

    counted = [(run, measured) for run in group if (measured := run.last(budget)) is not None]
    whole = [(run, alone[key_of(run)]) for run, _ in counted if key_of(run) in alone]
    told = verdicts([(one, other) for one, other in whole if one is not other and whole_run(one) and whole_run(other)])
    differences: list[float] = []
    helped: list[float] = []
    pairs: list[tuple[MeasuredRun, Scores, Scores]] = []
    for run, measured in counted:
        rival = alone[key_of(run)].last(budget) if key_of(run) in alone else None
        if rival is not None:
            pairs.append((run, measured.validation["pre"], rival.validation["pre"]))
            found = list(gains(measured.test["pre"], rival.test["pre"], higher).values())
            differences.append(_mean(found))
            helped += found
    scored, checked = (shared_rows(group, part) for part in ("test", "validation"))
    ends = [run.within(equal[key_of(run)], budget.clock) for run in group if key_of(run) in equal]
    spent = [_spent(run, budget) for run in group]
    times = [run.seconds if end is run.measurements[-1] else math.nan for run, end in counted]  # no part is timed
    return ComparisonRow(
        label=label,
        seeds=len(counted),
        pre=interval([mean_score(m.test["pre"]) for _, m in counted], scored),
        post=interval([mean_score(m.test["post"]) for _, m in counted], scored),
        validation=interval([mean_score(m.validation["pre"]) for _, m in counted], checked),
        gain=interval(differences, scored),
        decile=_mean([bottom_decile(m.test["pre"], higher) for _, m in counted]),
        worse_off=_share([one.word == "worse" for one in told] or [value < 0 for value in helped]),
        up=_mean([one.up for one in spent]),
        down=_mean([one.down for one in spent]),
        at_equal=interval([mean_score(m.test["pre"]) for m in ends if m is not None], scored),
        flops=_mean([one.flops for one in spent]),
        simulated=_mean([one.seconds for one in spent]),
        seconds=_mean(times) if len(counted) == len(group) else math.nan,
        gains=tuple(helped),
        lead=_lead(pairs, higher, checked),
        alone=alone_too,
        others={
            metric: interval([mean_score(m.others.get(metric, {})) for _, m in counted], scored)
            for metric in (counted[0][1].others if counted else ())
        },
        verdicts=tuple(told),
        improving=2 * sum(run.improving for run in group) > len(group),
    )


def shared_rows(group: Sequence[MeasuredRun], part: Literal["test", "validation"]) -> float:
    """Return the ratio of scored to training rows; 0 if a seed does not redraw the rows, as in a split by time."""
    first = group[0]
    if str(first.settings.get("split", {}).get("by", "")).startswith("time:"):
        return 0.0
    clients = first.about.clients.values()
    scored = sum(one.test if part == "test" else one.validation for one in clients)
    return scored / max(sum(one.train for one in clients), 1)


def _why_diverged(group: Sequence[MeasuredRun]) -> str:
    """Return why the first diverged run has diverged; empty if none has."""
    return next((run.diverged for run in group if run.diverged), "")


SEEDS = 3
"""Number of seeds from which on their spread measures chance."""


def _lead(pairs: Sequence[tuple[MeasuredRun, Scores, Scores]], higher: bool, shared: float) -> ValidationLead | None:
    """Return the lead over training alone on validation data, from one pair of scores per seed; None without pairs."""
    found = [(run, mine, alone, gains(mine, alone, higher)) for run, mine, alone in pairs]
    found = [one for one in found if one[3]]
    if not found:
        return None
    by_seed = [_mean([*each.values()]) for *_, each in found]
    halves = [_half(by_seed, shared)] if len(by_seed) >= SEEDS else []
    if halves and shared:
        pass  # each seed redraws the rows, so the spread between seeds covers their choice
    elif found[0][0].about.metric == "accuracy":
        errors = [
            _error(
                [(score[client], run.about.clients[client].validation) for score in (mine, alone) for client in each]
            )
            / len(each)
            for run, mine, alone, each in found
        ]
        halves.append(1.96 * max(errors))
    else:
        halves.append(_half([_mean([each[client] for *_, each in found if client in each]) for client in found[0][3]]))
    rows = sum(found[0][0].about.clients[client].validation for client in found[0][3])
    return ValidationLead(_mean(by_seed), max(halves), rows, len(found))


def _half(values: Sequence[float], shared: float = 0.0) -> float:
    found = interval(values, shared)
    return math.inf if found is None or found.half is None else found.half


def _error(shares: Sequence[tuple[float, int]]) -> float:
    """Return the standard error of a sum of shares, given with their rows. Shares of 0 or 1 get an error, too."""
    unsure = [((share * rows + 1) / (rows + 2), rows) for share, rows in shares]
    return math.sqrt(sum(share * (1 - share) / max(rows, 1) for share, rows in unsure))


def _spent(run: MeasuredRun, budget: Budget) -> Measurement:
    """Return the costs up to the evaluation that counts; zero if there is none."""
    return run.last(budget) or Measurement(0, 0, 0, 0.0, 0, {}, {})


def _share(found: Sequence[bool]) -> float | None:
    return _mean(found) if found else None


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan
