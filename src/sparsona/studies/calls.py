"""Studies as functions: `sparsona.compare`, `sweep`, `tune` and `choose`. The commands of the same names call them."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from sparsona.errors import InputError
from sparsona.experiment import merged, placed, read
from sparsona.methods import METHODS
from sparsona.metrics import in_percent
from sparsona.report.command import run_command
from sparsona.report.compared import trial_text
from sparsona.report.comparison import group_runs
from sparsona.report.console import pool_lines
from sparsona.report.frames import Frame, frame
from sparsona.report.html import write_report
from sparsona.report.measured import measure
from sparsona.report.progress import Bar, Shown
from sparsona.report.verdicts import write_verdicts
from sparsona.report.words import Answer
from sparsona.runs.budget import Budget
from sparsona.runs.directory import RunDirectory
from sparsona.studies import choosing, tuning
from sparsona.studies import sweep as sweeps
from sparsona.studies.contest import POOLS, TABLES, Contest, Runs, measured_groups, run_contest, ways_alone
from sparsona.studies.declared import declare
from sparsona.studies.study import Study
from sparsona.words import counted


def compare(
    methods: str | Sequence[str],
    *,
    seeds: int | None = None,
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
    Without `out`, the runs are kept as long as the study. ``resume=True`` continues an interrupted study. There are 5
    `seeds` unless another number is given, or the study that is continued has another.

    >>> study = compare(["fedavg"], seeds=2, clients=3, rounds=2, partition="iid", lr=0.3)
    >>> sorted(study.groups), study.frame["seeds"].tolist()
    (['fedavg', 'fedavg-ft', 'local'], [2, 2, 2])
    """
    names = (methods,) if isinstance(methods, str) else tuple(methods)
    shared, first, folder, held = _asked(settings, out)
    there = Contest.read(folder) if resume and (folder.exists() or not names) else None
    if there is not None:
        first = there.seeds[0]
    seeds = seeds or (len(there.seeds) if there else 5)
    asked = Contest(names, tuple(range(first, first + seeds)), shared, _texts(set), Budget(budget_mb, budget_seconds))
    runs = Runs(declare(folder, asked.including(), resume), folder)
    prepared = runs.prepare(runs.contest.contenders[0], runs.contest.seeds[0])
    contest = runs.contest = runs.contest.including(ways_alone(prepared))
    with Bar("compare", len(contest.contenders) * len(contest.seeds), progress) as bar:
        failed = run_contest(runs, bar)
    experiment, (begin, *_, end) = prepared.experiment, (contest.seeds[0], contest.seeds[-1])
    size = f"{counted(experiment.clients, 'client')}, {experiment.partition}, {counted(contest.rounds, 'round')}"
    title = f"{experiment.data}, {size}, {f'seeds {begin} to {end}' if end > begin else f'seed {begin}'}"
    pools = {one: pool_lines(runs.path(one, begin), prepared.setup.objective.metric_name) for one in contest.contenders}
    study = Study(folder, measured_groups(runs), failed, contest.budget, title, pools=pools, temporary=held)
    if not study.is_measured:
        return study
    write_verdicts(folder / "clients.csv", {row.label: row.verdicts for row in study.comparison.rows})
    notes = [f"{one}, seed {begin}, {line}" for one, lines in pools.items() for line in lines]
    return dataclasses.replace(study, answer=write_report([folder], folder / "report.html", contest.budget, notes))


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

    `over` has the values of each key, ``{"lr": [0.01, 0.1], "seed": range(5)}``. `method` is a name, an experiment
    file, or empty to continue the sweep in `out`. With ``choose_by="validation"`` the study keeps, of each method, the
    setting with the best mean validation score over its seeds; `Study.candidates` has all of them.

    >>> found = sweep("fedavg", over={"lr": [0.001, 0.3]}, choose_by="validation", clients=3, rounds=2, partition="iid")
    >>> list(found.groups)
    ['fedavg']
    """
    file = Path(method)
    base: dict[str, Any] = read(file) if file.suffix == ".toml" else {"method": method} if method else {}
    shared, first, folder, held = _asked(settings, out, "" if "method" in over else str(base.get("method", "")))
    base = merged(base, shared | ({"seed": first} if "seed" in settings else {}))
    if resume and not over:
        sweeps.Sweep.read(folder)
    asked = sweeps.Sweep(base, {key: _values(values) for key, values in over.items()}, _texts(set))
    declared = declare(folder, asked, resume)
    with Bar("sweep", len(list(declared.points())), progress) as bar:
        failed = sweeps.run_sweep(declared, folder, bar)
    found = sweeps.swept_runs(declared, folder)
    if not found:
        return Study(folder, {}, failed, temporary=held)
    chosen = sweeps.chosen_settings(found) if choose_by else {run.point.setting for run in found}
    kept = [measure(folder / run.point.name) for run in found if run.point.setting in chosen]
    rows = [
        {**dict(setting), "seeds": count, "validation": score, "chosen": setting in chosen}
        for setting, (score, count) in sweeps.validation_scores(found).items()
    ]
    candidates = frame(rows) if choose_by else None
    return Study(folder, group_runs(kept), failed, candidates=candidates, temporary=held)


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search: the chosen trial, whether it meets the target, and all trials."""

    chosen: tuning.Trial
    target: tuning.Target
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
    def front(self) -> list[tuning.Trial]:
        """The trials that no other beats in both aims, and the chosen one, from the fewest bytes on."""
        found = tuning.front(list(self.trials), self.higher_is_better)
        return found if self.chosen in found else sorted([*found, self.chosen], key=lambda trial: trial.mb)

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
    searched, target = tuning.knobs(method, tuple(knobs)), tuning.Target(target_mb, target_score)
    runs = Runs(declare(folder, asked, resume), folder)
    metric = runs.prepare(method, first).setup.objective.metric_name
    if in_percent(metric) and target_score is not None and not 0 <= target_score <= 1:
        raise InputError(f"--target-score {target_score:g} is no share of 1: give 0.9 for 90 %")
    with Bar(f"tune {method}", trials, progress) as bar:

        def told(trial: tuning.Trial | None, number: int, why: str) -> None:
            text = trial_text(trial, number, trials, why, metric)
            bar.step(note=text)
            bar.say(text)

        done, higher = tuning.tune(runs, method, searched, target, trials, told)
    if not done:
        raise InputError("every trial failed: see the lines above, and search other knobs with --knobs")
    chosen, met = tuning.pick(done, target, higher)
    whole = read(RunDirectory(runs.path(chosen.contender, first)).experiment_file)
    return Tuned(chosen, target, met, tuple(done), metric, higher, folder, whole, held)


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
    """Race methods on validation data and recommend one, as ``sparsona choose`` does: all unless some are named."""
    shared, first, folder, held = _asked(settings, out)
    names = dict.fromkeys(methods or [name for name in METHODS.names() if name not in TABLES])
    asked = Contest(tuple(names), tuple(range(first, first + seeds)), shared, _texts(set))
    runs = Runs(declare(folder, asked.including(), resume), folder)
    prepared = runs.prepare(runs.contest.contenders[0], runs.contest.seeds[0])
    alone = ways_alone(prepared)
    pools = POOLS if not methods and TABLES[0] in alone else ()
    contest = runs.contest = runs.contest.including((*alone, *pools))
    stages = choosing.stages_of(contest.rounds)
    with Bar("choose", len(stages) * len(contest.contenders) * len(contest.seeds), progress) as bar:
        history = choosing.race(runs, contest.rounds, choosing.Limits(mb_per_round, seconds), bar)
    finalists = [standing.contender for standing in history[-1].standings]
    folders = [runs.path(name, seed) for name in finalists for seed in contest.seeds]
    metric = prepared.setup.objective.metric_name
    notes = [*choosing.account(history, metric), *pool_lines(runs.path(finalists[0], contest.seeds[0]), metric)]
    answer = write_report(folders, folder / "report.html", notes=notes, raced=len(contest.contenders))
    groups = {name: group for name, group in measured_groups(runs).items() if name in finalists}
    return Choice(history, answer, tuple(notes), Study(folder, groups, temporary=held))


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
