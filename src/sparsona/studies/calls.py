"""Studies as functions: `sparsona.compare`, `sweep`, `tune` and `choose`. The commands of the same names call them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from sparsona.errors import InputError
from sparsona.experiment import placed, read, rounds_of
from sparsona.methods import METHODS
from sparsona.metrics._named import in_percent
from sparsona.prepare import Prepared
from sparsona.report.clients import pool_lines
from sparsona.report.command import run_command
from sparsona.report.comparison import group_runs
from sparsona.report.frames import Frame, frame
from sparsona.report.html import write_report
from sparsona.report.measured import measure
from sparsona.report.progress import Bar
from sparsona.report.verdicts import write_verdicts
from sparsona.report.words import Answer
from sparsona.runs.budget import Budget
from sparsona.runs.directory import RunDirectory
from sparsona.studies import choosing, space, tuning
from sparsona.studies import contest as contests
from sparsona.studies import sweep as sweeps
from sparsona.studies.contest import POOLS, TABLES, Contest, ContestWatcher, Runs, declare, ways_alone
from sparsona.studies.study import Study
from sparsona.studies.sweep import Sweep, SweepWatcher

Shown: TypeAlias = bool | None
"""True to show progress; None: in terminals and notebooks."""


def compare(
    methods: str | Sequence[str],
    *,
    seeds: int = 5,
    budget_mb: float | None = None,
    budget_seconds: float | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    set: str | Sequence[str] = (),
    progress: Shown = None,
    **settings: Any,
) -> Study:
    """Run several methods on the same clients, once per seed, as ``sparsona compare`` does.

    A method may have settings of its own, ``"fedprox:mu=1"``. `settings` are keywords of :func:`sparsona.run`.
    Without `out`, the runs are kept as long as the study. ``resume=True`` continues an interrupted study.

    >>> study = compare(["fedavg"], seeds=2, clients=3, rounds=2, partition="iid", lr=0.3)
    >>> sorted(study.groups), study.frame["seeds"].tolist()
    (['fedavg', 'fedavg-ft', 'local'], [2, 2, 2])
    """
    names = (methods,) if isinstance(methods, str) else tuple(methods)
    shared, first, folder, held = _asked(settings, out)
    asked = Contest(names, tuple(range(first, first + seeds)), shared, _texts(set), Budget(budget_mb, budget_seconds))

    @contextmanager
    def shown(contest: Contest, prepared: Prepared) -> Any:
        runs = len(contest.contenders) * len(contest.seeds)
        with Bar("compare", runs, progress) as bar:
            yield ContestWatcher(
                round=lambda who, seed, report: bar.step(bar.done, f"{who}, seed {seed}, round {report.round}"),
                ended=lambda who, seed, run: bar.step(),
            )

    return dataclasses.replace(run_comparison(asked, folder, resume, shown), temporary=held)


def run_comparison(
    asked: Contest,
    folder: Path,
    resume: bool,
    shown: Callable[[Contest, Prepared], AbstractContextManager[ContestWatcher]],
) -> Study:
    """Declare a contest in a folder, run it, and write its verdicts and its report."""
    contest = declare(folder, asked.including(), resume)
    runs = Runs(contest, folder)
    prepared = runs.prepare(contest.contenders[0], contest.seeds[0])
    contest = runs.contest = contest.including(ways_alone(prepared))
    with shown(contest, prepared) as watcher:
        failed = contests.run_contest(runs, watcher)
    first, metric = contest.seeds[0], prepared.setup.objective.metric_name
    pools = {one: pool_lines(runs.path(one, first), metric) for one in contest.contenders}
    study = Study(folder, contests.measured_groups(runs), failed, contest.budget, pools=pools)
    told = None
    if study.is_measured:
        write_verdicts(folder / "clients.csv", {row.label: row.verdicts for row in study.comparison.rows})
        notes = [f"{one}, seed {first}, {line}" for one, lines in pools.items() for line in lines]
        told = write_report([folder], folder / "report.html", contest.budget, notes)
    return dataclasses.replace(study, answer=told)


def sweep(
    method: str = "fedavg",
    *,
    over: Mapping[str, Iterable[Any]],
    choose_by: Literal["validation"] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    set: str | Sequence[str] = (),
    progress: Shown = None,
    **settings: Any,
) -> Study:
    """Run every combination of some settings, as ``sparsona sweep`` does.

    `over` has the values of each key, ``{"lr": [0.01, 0.1], "seed": range(5)}``. `method` is a name, or an experiment
    file. With ``choose_by="validation"`` the study keeps, of each method, the setting with the best mean validation
    score over its seeds; `Study.candidates` has all of them.

    >>> found = sweep("fedavg", over={"lr": [0.001, 0.3]}, choose_by="validation", clients=3, rounds=2, partition="iid")
    >>> list(found.groups)
    ['fedavg']
    """
    file = Path(method)
    base: dict[str, Any] = read(file) if file.suffix == ".toml" else {"method": method}
    shared, first, folder, held = _asked(settings, out, "" if "method" in over else str(base.get("method", "")))
    for key, value in (shared | ({"seed": first} if "seed" in settings else {})).items():
        base[key] = {**base.get(key, {}), **value} if isinstance(value, Mapping) else value
    asked = Sweep(base, {key: _values(values) for key, values in over.items()}, _texts(set))

    @contextmanager
    def shown(declared: Sweep) -> Any:
        with Bar("sweep", len(list(declared.points())), progress) as bar:
            yield SweepWatcher(
                round=lambda point, report: bar.step(bar.done, f"{point.name}, round {report.round}"),
                ended=lambda point, problem: bar.step(),
            )

    return dataclasses.replace(make_sweep(asked, folder, resume, shown, choose_by), temporary=held)


def make_sweep(
    asked: Sweep,
    folder: Path,
    resume: bool,
    shown: Callable[[Sweep], AbstractContextManager[SweepWatcher]],
    choose_by: Literal["validation"] | None = None,
) -> Study:
    """Declare a sweep in a folder, run it, and keep all settings, or the chosen one of each method."""
    declared = sweeps.declare(folder, asked, resume)
    with shown(declared) as watcher:
        failed = sweeps.run_sweep(declared, folder, watcher)
    found = sweeps.swept_runs(declared, folder)
    if not found:
        return Study(folder, {}, failed)
    chosen = sweeps.chosen_settings(found) if choose_by else {sweeps.setting_of(run.point) for run in found}
    kept = [measure(folder / run.point.name) for run in found if sweeps.setting_of(run.point) in chosen]
    rows = [
        {**dict(setting), "seeds": count, "validation": score, "chosen": setting in chosen}
        for setting, (score, count) in sweeps.validation_scores(found).items()
    ]
    return Study(folder, group_runs(kept), failed, candidates=frame(rows) if choose_by else None)


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search: the chosen trial, whether it meets the target, and all trials."""

    chosen: tuning.Trial
    met: bool
    trials: tuple[tuning.Trial, ...] = field(repr=False)
    metric: str
    higher_is_better: bool
    folder: Path
    settings: Mapping[str, Any] = field(repr=False)
    """The whole experiment of the chosen trial."""
    temporary: TemporaryDirectory[str] | None = field(default=None, repr=False)

    @property
    def frame(self) -> Frame:
        """One row per trial; only the chosen one has a test score."""
        rows = [
            {**trial.settings, "validation": trial.validation, "mb": trial.mb, "chosen": trial == self.chosen,
             "test": trial.test if trial == self.chosen else None}
            for trial in self.trials
        ]  # fmt: skip
        return frame(rows)

    @property
    def command(self) -> str:
        """The command that runs the chosen setting."""
        return run_command(self.settings)


def tune(
    method: str,
    *,
    target_mb: float | None = None,
    target_score: float | None = None,
    trials: int = 20,
    knobs: Sequence[str] = (),
    seeds: int = 1,
    out: str | Path | None = None,
    resume: bool = False,
    set: str | Sequence[str] = (),
    progress: Shown = None,
    **settings: Any,
) -> Tuned:
    """Search a method's settings on validation data, as ``sparsona tune`` does."""
    shared, first, folder, held = _asked(settings, out, method)
    asked = Contest((method,), tuple(range(first, first + seeds)), shared, _texts(set))
    with Bar(f"tune {method}", trials, progress) as bar:
        found = make_search(
            asked, knobs, tuning.Target(target_mb, target_score), trials, folder, resume, lambda *_: bar.step()
        )
    return dataclasses.replace(found, temporary=held)


def make_search(
    asked: Contest,
    knobs: Sequence[str],
    target: tuning.Target,
    trials: int,
    folder: Path,
    resume: bool,
    watch: Callable[[tuning.Trial | None, int, str, str], None],
) -> Tuned:
    """Make the trials of a search in a folder and pick one."""
    (method,) = asked.contenders
    found = space.knobs(method, tuple(knobs))
    runs = Runs(declare(folder, asked, resume), folder)
    metric = runs.prepare(method, asked.seeds[0]).setup.objective.metric_name
    if in_percent(metric) and target.score is not None and not 0 <= target.score <= 1:
        raise InputError(f"--target-score {target.score:g} is no share of 1: give 0.9 for 90 %")
    done, higher = tuning.tune(
        runs, method, found, target, trials, lambda trial, number, note: watch(trial, number, note, metric)
    )
    if not done:
        raise InputError("every trial failed: see the lines above, and search other knobs with --knobs")
    chosen, met = tuning.pick(done, target, higher)
    settings = read(RunDirectory(runs.path(chosen.contender, asked.seeds[0])).experiment_file)
    return Tuned(chosen, met, tuple(done), metric, higher, folder, settings)


@dataclass(frozen=True)
class Choice:
    """The outcome of a race: its stages, the answer of the report, and the finalists' runs."""

    stages: tuple[choosing.Stage, ...]
    answer: Answer
    notes: tuple[str, ...]
    study: Study

    @property
    def winner(self) -> str:
        """The contender that leads on validation data at the end."""
        return self.stages[-1].standings[0].contender

    @property
    def frame(self) -> Frame:
        """One row per stage and contender, the best first."""
        rows = [
            {"rounds": stage.rounds, "method": one.contender, "validation": one.score, "mb_per_round": one.mb_per_round}
            for stage in self.stages
            for one in stage.standings
        ]
        return frame(rows)


def choose(
    methods: Sequence[str] = (),
    *,
    mb_per_round: float | None = None,
    seconds: float | None = None,
    seeds: int = 1,
    out: str | Path | None = None,
    resume: bool = False,
    set: str | Sequence[str] = (),
    progress: Shown = None,
    **settings: Any,
) -> Choice:
    """Race methods on validation data and recommend one, as ``sparsona choose`` does."""
    shared, first, folder, held = _asked(settings, out)
    asked = Contest(tuple(methods), tuple(range(first, first + seeds)), shared, _texts(set))
    limits, stages = choosing.Limits(mb_per_round, seconds), len(choosing.stages_of(rounds_of(shared)))
    with Bar("choose", stages * len(asked.contenders or METHODS.names()), progress) as bar:
        found = make_choice(asked, limits, folder, resume, lambda text: bar.step(note=text))
    return dataclasses.replace(found, study=dataclasses.replace(found.study, temporary=held))


def make_choice(
    asked: Contest,
    limits: choosing.Limits,
    folder: Path,
    resume: bool,
    say: Callable[[str], None],
) -> Choice:
    """Run a race in a folder, all methods unless some are named, and write its report."""
    names = asked.contenders or tuple(name for name in METHODS.names() if name not in TABLES)
    contest = declare(folder, dataclasses.replace(asked, contenders=tuple(dict.fromkeys(names))).including(), resume)
    runs = Runs(contest, folder)
    prepared = runs.prepare(contest.contenders[0], contest.seeds[0])
    alone = ways_alone(prepared)
    pools = POOLS if not asked.contenders and TABLES[0] in alone else ()
    contest = runs.contest = contest.including((*alone, *pools))
    history = choosing.race(runs, runs.rounds, limits, say)
    finalists = [standing.contender for standing in history[-1].standings]
    folders = [runs.path(name, seed) for name in finalists for seed in contest.seeds]
    metric = prepared.setup.objective.metric_name
    notes = [*choosing.account(history, metric), *pool_lines(runs.path(finalists[0], contest.seeds[0]), metric)]
    answer = write_report(folders, folder / "report.html", notes=notes, raced=len(contest.contenders))
    groups = {name: group for name, group in contests.measured_groups(runs).items() if name in finalists}
    return Choice(history, answer, tuple(notes), Study(folder, groups))


def _asked(
    settings: Mapping[str, Any], out: str | Path | None, method: str = ""
) -> tuple[dict[str, Any], int, Path, TemporaryDirectory[str] | None]:
    """Return the settings of all runs, the first seed, the folder, and its finaliser if it is temporary.

    `method` is the common method of all runs, if there is one: its options are keywords, too.
    """
    shared = placed(settings, METHODS.get(method) if method else None)
    for key in ("data", "model", "objective"):
        if not isinstance(shared.get(key, ""), str):
            raise InputError(
                f"a study's runs are made in other processes, which find {key} by name only: give a name, such as "
                "folder:DIR or npz:FILE for data of your own"
            )
    first = int(shared.pop("seed", 0))
    if out is not None:
        return shared, first, Path(out), None
    held = TemporaryDirectory(prefix="sparsona-")
    return shared, first, Path(held.name) / "study", held


def _texts(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _values(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the values of a key as --over takes them."""
    if isinstance(values, str):
        values = sweeps.parse_over([f"key={values}"])["key"]
    return tuple(dict.fromkeys(str(value).lower() if isinstance(value, bool) else str(value) for value in values))
