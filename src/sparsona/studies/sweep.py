"""A sweep: one experiment with every combination of some settings, one run each."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from sparsona.errors import InputError
from sparsona.experiment import SECTION_OF, assign, build, merged, without_auto
from sparsona.many import Loader, RunEnded, RunPlan
from sparsona.many.processes import place_for
from sparsona.prepare import Prepared
from sparsona.report.progress import Bar
from sparsona.runs.about import read_about
from sparsona.runs.directory import RunDirectory
from sparsona.studies.declared import Declaration, distinct_names, make_runs

Setting: TypeAlias = tuple[tuple[str, str], ...]
"""The values of one combination without its seed."""
MOST_RUNS = 10_000
"""Limit of combinations; more are usually a typing error."""


@dataclass(frozen=True)
class Sweep(Declaration):
    """The common settings of all runs, further assignments, and the values of each swept key."""

    file = "sweep.json"
    what = "sweep"
    settings: Mapping[str, Any]
    over: Mapping[str, tuple[str, ...]]
    set: tuple[str, ...] = ()

    def joined(self, more: Sweep) -> Sweep:
        """Return this sweep, extended by another one."""
        for key in more.over.keys() - self.over.keys():
            raise InputError(f"the sweep is not over {key}, and its runs have no value for it: choose another --out")
        over = {key: tuple(dict.fromkeys((*values, *more.over.get(key, ())))) for key, values in self.over.items()}
        return Sweep(merged(self.settings, more.settings), over, tuple(dict.fromkeys((*self.set, *more.set))))

    def to_check(self, there: Sweep, folder: Path) -> list[RunPlan]:
        """Return all runs: a finished one is in the tables and is not advanced."""
        return [*self.plans(folder).values()]

    def plans(self, folder: Path) -> dict[str, RunPlan]:
        """Return the plan of each run by its name."""
        return {one.name: RunPlan(folder / one.name, one.settings, f"the run {one.name}") for one in self.points()}

    def points(self) -> Iterator[SweepPoint]:
        """Yield one point per combination, in the order of the values; the last key changes fastest."""
        if not self.over:
            raise InputError("a sweep is over at least one setting: give --over KEY=A,B,...")
        _check_number(math.prod(len(values) for values in self.over.values()))
        names = distinct_names({values: _plain_name(self.over, values) for values in product(*self.over.values())})
        for values, name in names.items():
            chosen = dict(zip(self.over, values, strict=True))
            yield SweepPoint(name, chosen, self._settings(chosen))

    def _settings(self, chosen: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings, method first, because a key without a section depends on it."""
        ordered = sorted(chosen.items(), key=lambda item: item[0] != "method")
        settings = assign(dict(self.settings), [f"{key}={value}" for key, value in ordered if key == "method"])
        try:
            return assign(settings, (*self.set, *(f"{key}={value}" for key, value in ordered if key != "method")))
        except InputError as error:
            raise InputError(f"{settings.get('method')}: {error}") from None


@dataclass(frozen=True)
class SweepPoint:
    """One run of a sweep: the name of its folder, its own values, and all its settings."""

    name: str
    chosen: Mapping[str, str]
    settings: Mapping[str, Any] = field(repr=False)

    @property
    def setting(self) -> Setting:
        """Return its values without its seed."""
        return tuple((key, value) for key, value in self.chosen.items() if key != "seed")


def _plain_name(keys: Iterable[str], values: Iterable[str]) -> str:
    """
    >>> _plain_name(["method", "training.lr", "seed"], ["fedpse", "0.1", "3"])
    'fedpse-lr0.1-seed3'
    """
    parts = [v if k == "method" else f"{k.rpartition('.')[2]}{v}" for k, v in zip(keys, values, strict=True)]
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.") for part in parts)


def parse_over(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Parse the values per key: a list with commas, or A:B for the whole numbers from A to before B.

    >>> parse_over(["method=fedavg,fedpse", "seed=0:3", "density=[0.2,0.5],0.9"])
    {'method': ('fedavg', 'fedpse'), 'seed': ('0', '1', '2'), 'density': ('[0.2,0.5]', '0.9')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        key = key.strip()
        values = tuple(value.strip() for value in _split(rest))
        if not equals or not key or not all(values):
            raise InputError(f"--over takes KEY=A,B,... or KEY=FROM:TO, not {text!r}")
        if key in found:
            raise InputError(f"--over {key} is given twice: write all its values with commas")
        spread = [str(n) for value in values for n in _range(value)]
        found[key] = tuple(dict.fromkeys(spread))
        if not found[key]:
            raise InputError(f"--over {text}: there is no number from the first to before the second")
    return found


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _range(value: str) -> Iterable[str | int]:
    bounds = re.fullmatch(r"(\d+):(\d+)", value)
    if bounds is None:
        return (value,)
    first, end = int(bounds[1]), int(bounds[2])
    _check_number(end - first)
    return range(first, end)


def _check_number(runs: int) -> None:
    if runs > MOST_RUNS:
        raise InputError(f"--over makes {runs:,} runs, at most {MOST_RUNS:,} are made in a sweep: take fewer values")


def run_sweep(sweep: Sweep, folder: Path, bar: Bar | None = None) -> dict[str, str]:
    """Execute all unfinished runs; return the failed ones with reasons, without which the others continue.

    Every combination is checked before the folder is taken and the first run starts.
    """
    plans = sweep.plans(folder)
    todo = {name: plan for name, plan in plans.items() if not plan.finished}
    bar = bar or Bar("", 0, False)
    bar.step(len(plans) - len(todo))
    if not todo:
        sweep.keep(folder)
        return {}
    loader, failed = Loader(), dict[str, str]()
    longest = _prepared(loader, todo)
    sweep.keep(folder)

    def said(run: RunEnded) -> str:
        if run.error is not None:
            failed[run.name] = str(run.error)
        return f"[{bar.done}/{len(plans)}] {run.name}{f': {run.error}' if run.error is not None else ''}"

    engine = str(next(iter(todo.values())).settings.get("engine", "auto"))
    place = place_for(longest, len(todo), folder, engine, loader)
    make_runs({name: partial(plans.__getitem__, name) for name in todo}, place, bar, said)
    return failed


def _prepared(loader: Loader, plans: Mapping[str, RunPlan]) -> Prepared:
    """Prepare one run per combination without its seed, to find invalid ones; return the longest."""
    kinds: dict[str, RunPlan] = {}
    for plan in plans.values():
        build(without_auto(plan.settings)[0], plan.origin)
        kinds.setdefault(json.dumps({**plan.settings, "seed": 0}, sort_keys=True, default=str), plan)
    by_data = sorted(kinds.values(), key=lambda plan: str(plan.settings.get("data")))
    return max((loader.prepare(plan.settings, plan.origin) for plan in by_data), key=lambda one: one.seconds)


@dataclass(frozen=True)
class SweptRun:
    """A finished run of a sweep: its own values, its summary, and whether a higher score is better."""

    point: SweepPoint
    summary: Mapping[str, Any]
    higher_is_better: bool = True

    @property
    def scores(self) -> dict[str, float]:
        """Return the mean validation score at `pre`, and the test scores at `pre` and `post`; NaN without one."""
        points = self.summary[self.summary["metric"]]
        found = {"validation": self.summary.get("validation", {}).get("pre")}
        found |= {point: points.get(point, {}).get("mean") for point in ("pre", "post")}
        return {name: math.nan if value is None else float(value) for name, value in found.items()}


PROBLEM = ("method", "data", "partition", "clients", "new_clients")
"""Keys that define the problem, with all of `split` and `columns`; each of their values gets its own choice."""


def validation_scores(runs: Sequence[SweptRun]) -> dict[Setting, tuple[float, int]]:
    """Return per setting the mean validation score over its seeds, and their number."""
    found: dict[Setting, list[float]] = {}
    for run in runs:
        found.setdefault(run.point.setting, []).append(run.scores["validation"])
    return {setting: (sum(scores) / len(scores), len(scores)) for setting, scores in found.items()}


def chosen_settings(runs: Sequence[SweptRun]) -> set[Setting]:
    """Return the setting with the best mean validation score per method and problem."""
    scores, sign = validation_scores(runs), 1 if runs[0].higher_is_better else -1
    best: dict[Setting, tuple[float, Setting]] = {}
    for setting, (score, _) in scores.items():
        given = tuple((key, value) for key, value in setting if _is_given(key))
        if not math.isnan(score) and (given not in best or sign * score > best[given][0]):
            best[given] = sign * score, setting
    if not best:
        raise InputError("no client has validation rows, and a choice is made by nothing else: set split.validation")
    return {setting for _, setting in best.values()}


def _is_given(key: str) -> bool:
    section, _, name = key.rpartition(".")
    return name in PROBLEM or (section or SECTION_OF.get(name, "")) in ("split", "columns")


def swept_runs(sweep: Sweep, folder: Path) -> list[SweptRun]:
    """Return the finished runs."""
    directories = ((point, RunDirectory(folder / point.name)) for point in sweep.points())
    return [
        SweptRun(point, one.summary(), read_about(one.path).higher_is_better)
        for point, one in directories
        if one.summary_file.exists()
    ]
