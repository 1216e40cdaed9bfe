"""A sweep: one experiment with some settings taken through all their values, a run for every combination."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from sparsona.errors import InputError, RunError
from sparsona.experiment import SECTION_OF, assign, build
from sparsona.files import write_atomically
from sparsona.many import Planned, RunEnded, Watcher, run_many
from sparsona.many.choice import place_for
from sparsona.many.plan import Loader, RunPlan
from sparsona.prepare import Prepared
from sparsona.rate import settled
from sparsona.resume import check_resumable
from sparsona.runs.about import read_about
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import RoundReport
from sparsona.studies.naming import distinct_names

FILE = "sweep.json"
MOST_RUNS = 10_000
"""A sweep of more combinations is refused: it is a slip of the keyboard more often than a plan."""


@dataclass(frozen=True)
class Sweep:
    """The settings that all runs share, the assignments behind them, and the values of each key that is swept."""

    settings: Mapping[str, Any]
    over: Mapping[str, tuple[str, ...]]
    set: tuple[str, ...] = ()

    def text(self) -> str:
        """The sweep as its file holds it."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def parse(cls, text: str) -> Sweep:
        """What :meth:`text` has written."""
        return TypeAdapter(cls).validate_json(text)

    def joined(self, more: Sweep) -> Sweep:
        """This sweep with the values, and whatever else, that are given now."""
        for key in more.over.keys() - self.over.keys():
            raise InputError(f"the sweep is not over {key}, and its runs have no value for it: choose another --out")
        over = {key: tuple(dict.fromkeys((*values, *more.over.get(key, ())))) for key, values in self.over.items()}
        settings = dict(self.settings)
        for name, value in more.settings.items():
            settings[name] = {**settings.get(name, {}), **value} if isinstance(value, Mapping) else value
        return Sweep(settings, over, tuple(dict.fromkeys((*self.set, *more.set))))

    def points(self) -> Iterator[SweepPoint]:
        """A point for every combination, in the order of the values; the last key changes fastest."""
        _check_number(math.prod(len(values) for values in self.over.values()))
        names = distinct_names({values: _plain_name(self.over, values) for values in product(*self.over.values())})
        for values, name in names.items():
            chosen = dict(zip(self.over, values, strict=True))
            yield SweepPoint(name, chosen, self._settings(chosen))

    def _settings(self, chosen: Mapping[str, str]) -> dict[str, Any]:
        """The method first: what a key without a section means depends on it."""
        ordered = sorted(chosen.items(), key=lambda item: item[0] != "method")
        settings = assign(dict(self.settings), [f"{key}={value}" for key, value in ordered if key == "method"])
        try:
            return assign(settings, (*self.set, *(f"{key}={value}" for key, value in ordered if key != "method")))
        except InputError as error:
            raise InputError(f"{settings.get('method')}: {error}") from None


@dataclass(frozen=True)
class SweepPoint:
    """One run of a sweep: the name of its folder, the values that are its own, and all its settings."""

    name: str
    chosen: Mapping[str, str]
    settings: Mapping[str, Any] = field(repr=False)


def _plain_name(keys: Iterable[str], values: Iterable[str]) -> str:
    """
    >>> _plain_name(["method", "training.lr", "seed"], ["fedpse", "0.1", "3"])
    'fedpse-lr0.1-seed3'
    """
    parts = [v if k == "method" else f"{k.rpartition('.')[2]}{v}" for k, v in zip(keys, values, strict=True)]
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.") for part in parts)


def parse_over(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The values of each key: with commas, or whole numbers from A to before B.

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
    """At commas that stand in no brackets."""
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


def declare(folder: Path, sweep: Sweep, resume: bool) -> Sweep:
    """The sweep that a folder shall hold: with `resume` the one that is there, with whatever is added to it.

    Runs that are there with other settings than they would have now are refused. The folder stays as it is until
    :func:`run_sweep` has checked every combination.
    """
    file = folder / FILE
    if file.exists():
        if not resume:
            raise RunError(f"{folder} already holds a sweep: add --resume to continue it, or choose another --out")
        sweep = _read(file).joined(sweep)
        _check_runs(sweep, folder)
    elif not sweep.over or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise RunError(f"{folder} is not the folder of a sweep: choose another --out")
    return sweep


def _keep(folder: Path, sweep: Sweep) -> None:
    """Take the folder for the sweep and write it there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, sweep.text())


def _check_runs(sweep: Sweep, folder: Path) -> None:
    """Refuse a sweep of which a run is there that is another experiment's, or of other data."""
    loader = Loader()
    for point in sweep.points():
        directory = RunDirectory(folder / point.name)
        if directory.experiment_file.exists():
            prepared = loader.prepare(point.settings, f"the run {point.name}")
            check_resumable(directory, settled(prepared, directory))


def _read(file: Path) -> Sweep:
    try:
        return Sweep.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{file} is damaged ({error}): give another --out") from None


@dataclass(frozen=True)
class SweepWatcher:
    """What a sweep tells while it runs, of each point."""

    started: Callable[[SweepPoint], None] = lambda point: None
    round: Callable[[SweepPoint, RoundReport], None] = lambda point, report: None
    ended: Callable[[SweepPoint, str], None] = lambda point, problem: None


def run_sweep(sweep: Sweep, folder: Path, watcher: SweepWatcher, tensorboard: bool = False) -> dict[str, str]:
    """Make all runs that are not finished. Returns those that failed, by name, and why: the others go on without them.

    Every combination is checked before the folder is taken and the first run starts.
    """
    points = {point.name: point for point in sweep.points()}
    plans = {
        name: RunPlan(folder / name, point.settings, f"the run {name}", tensorboard=tensorboard)
        for name, point in points.items()
    }
    todo = {name: plan for name, plan in plans.items() if not plan.finished}
    for name, point in points.items():
        if name not in todo:
            watcher.ended(point, "")
    if not todo:
        _keep(folder, sweep)
        return {}
    loader, failed = Loader(), dict[str, str]()
    prepared = _prepared(loader, todo)
    _keep(folder, sweep)
    engine = str(next(iter(todo.values())).settings.get("engine", "auto"))

    def ended(run: RunEnded) -> None:
        if isinstance(run.error, RunError):
            raise run.error
        if run.error is not None:
            failed[run.name] = str(run.error)
        watcher.ended(points[run.name], failed.get(run.name, ""))

    with place_for(prepared, len(todo), folder, engine, loader) as place:
        run_many(
            [Planned(name, partial(plans.__getitem__, name)) for name in todo],
            place,
            Watcher(
                started=lambda name: watcher.started(points[name]),
                round=lambda name, report: watcher.round(points[name], report),
                ended=ended,
            ),
        )
    return failed


def _prepared(loader: Loader, plans: Mapping[str, RunPlan]) -> Prepared:
    """The longest of the runs that differ in more than their seed; preparing each shows what cannot be run."""
    kinds: dict[str, RunPlan] = {}
    for plan in plans.values():
        build(plan.settings, plan.origin)
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
    def validation(self) -> float:
        """The mean validation score at `pre`; NaN where there is none."""
        found = self.summary.get("validation", {}).get("pre")
        return math.nan if found is None else float(found)


Setting: TypeAlias = tuple[tuple[str, str], ...]
"""The values of one combination without its seed."""

PROBLEM = ("method", "data", "partition", "clients", "new_clients")
"""What is not chosen but given, with all keys of `split` and `columns`: a choice is made for each of their values."""


def setting_of(point: SweepPoint) -> Setting:
    """The values of a point without its seed."""
    return tuple((key, value) for key, value in point.chosen.items() if key != "seed")


def validation_scores(runs: Sequence[SweptRun]) -> dict[Setting, tuple[float, int]]:
    """Of each setting the mean validation score over its seeds, and their number."""
    found: dict[Setting, list[float]] = {}
    for run in runs:
        found.setdefault(setting_of(run.point), []).append(run.validation)
    return {setting: (sum(scores) / len(scores), len(scores)) for setting, scores in found.items()}


def chosen_settings(runs: Sequence[SweptRun]) -> set[Setting]:
    """The setting with the best mean validation score of each method and problem."""
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
    """The runs that are finished."""
    directories = ((point, RunDirectory(folder / point.name)) for point in sweep.points())
    return [
        SweptRun(point, one.summary(), read_about(one.path).higher_is_better)
        for point, one in directories
        if one.summary_file.exists()
    ]
