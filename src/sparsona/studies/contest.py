"""The runs of a study: their plan, their progress, and the functions that continue them.

A study is a folder of runs and a file that declares it. Every run can be stopped after any round and continued. All
results are computed from the runs' files, so an interrupted study ends like an uninterrupted one.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sparsona.errors import InputError, RunError
from sparsona.experiment import assign, rounds_of
from sparsona.experts.trees import is_installed
from sparsona.files import write_atomically
from sparsona.many import Loader, Planned, RunEnded, RunPlan, StopCondition, Watcher, advance, run_many
from sparsona.many.processes import place_for
from sparsona.methods import METHODS
from sparsona.prepare import Prepared
from sparsona.rate import settled
from sparsona.report.comparison import trains_alone
from sparsona.report.measured import MeasuredRun, measure
from sparsona.resume import check_resumable
from sparsona.runs.budget import Budget
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import RoundReport
from sparsona.studies.naming import distinct_names

log = logging.getLogger(__name__)
FILE = "study.json"
ALWAYS = ("local", "fedavg-ft")
"""Methods in every comparison: training alone, and the simplest personal method."""
TABLES = ("alone-trees", "alone-linear", "naive")
"""Further methods in every comparison on tables: experts without a net, trained alone, and the constant answer."""
POOLS = ("fedthin:pool=trees+shared", "fedavg:pool=trees+shared")
"""The pools that `choose` races on tables beside all methods: trees that never travel, with a thin or a whole model."""

LONGER_ALONE, PATIENCE_ALONE = 10, 10
"""Limits of a run that sends nothing: rounds, in units of the others', and evaluations without a better score."""


def ways_alone(prepared: Prepared) -> tuple[str, ...]:
    """Return the further baselines alone for these data: none for images and text."""
    inputs = prepared.setup.federation.data.inputs
    if inputs.ndim != 2 or inputs.dtype.kind != "f":
        return ()
    if not is_installed():
        log.warning('alone-trees is left out: it needs LightGBM, pip install "sparsona[trees]"')
        return TABLES[1:]
    return TABLES


def until_stalled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with which a run that sends nothing trains until its validation score stalls.

    The number of rounds limits traffic, so it does not limit this run.

    >>> until_stalled({"method": "local", "rounds": 5})
    {'method': 'local', 'rounds': 50, 'evaluation': {'patience': 10}}
    """
    evaluation = settings.get("evaluation", {})
    if not evaluation.get("every", 1) or "patience" in evaluation:
        return dict(settings)
    patience = {**evaluation, "patience": PATIENCE_ALONE}
    return {**settings, "rounds": LONGER_ALONE * rounds_of(settings), "evaluation": patience}


@dataclass(frozen=True)
class Contest:
    """The declaration of a contest: contenders, seeds, common settings, and the budget per run."""

    contenders: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    set: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)

    def including(self, names: Sequence[str] = ALWAYS) -> Contest:
        """Return the contest with the methods of every comparison added."""
        missing = tuple(name for name in names if name not in self.contenders)
        return replace(self, contenders=(*missing, *self.contenders))

    @property
    def rounds(self) -> int:
        """Return the rounds of the runs that send something."""
        name, _ = split_contender(self.contenders[0])
        return rounds_of(assign({**self.settings, "method": name}, self.set))

    def folder_of(self, contender: str, seed: int) -> str:
        """Return the name of a run's folder, for any text of a contender.

        >>> contest = Contest(("fedprox:mu=0.5", "pfedgate:gate_start=3", "pfedgate:gate_start=-3"), (3,))
        >>> [contest.folder_of(contender, 3) for contender in contest.contenders]
        ['fedprox-mu-0.5-seed3', 'pfedgate-gate-start-3-seed3', 'pfedgate-gate-start-3-625e31-seed3']
        """
        names = distinct_names({one: _plain_name(one) for one in (*self.contenders, contender)})
        return f"{names[contender]}-seed{seed}"

    def text(self) -> str:
        """Return the contest as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def parse(cls, text: str) -> Contest:
        """Parse a contest from JSON."""
        return TypeAdapter(cls).validate_json(text)


def split_contender(text: str) -> tuple[str, list[str]]:
    """Split a contender into its method and its own settings.

    >>> split_contender("fedspa:density=[0.2, 0.5],mask_1d=true")
    ('fedspa', ['density=[0.2, 0.5]', 'mask_1d=true'])
    """
    name, _, rest = text.partition(":")
    return name, re.split(r",\s*(?=[A-Za-z_][\w.]*=)", rest) if rest else []


def _plain_name(contender: str) -> str:
    """
    >>> _plain_name("fedprox:mu=0.5")
    'fedprox-mu-0.5'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", contender).strip("-")


def declare(folder: Path, contest: Contest, resume: bool) -> Contest:
    """Declare the contest of a folder; with `resume`, extend the existing one.

    Existing runs with other settings are refused. The folder is not changed before :meth:`Runs.keep`, so an invalid
    contest leaves nothing behind.
    """
    file = folder / FILE
    if file.exists():
        if not resume:
            raise RunError(f"{folder} already holds a study: add --resume to continue it, or choose another --out")
        there = read_contest(folder)
        contest = _joined(there, contest)
        if (contest.settings, contest.set) != (there.settings, there.set):  # else each run is asked when it is advanced
            _check_runs(Runs(contest, folder))
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is not the folder of a study: choose another --out")
    return contest


def _check_runs(runs: Runs) -> None:
    """Refuse a contest if an existing run belongs to another experiment."""
    for contender in runs.contest.contenders:
        for seed in runs.contest.seeds:
            directory = RunDirectory(runs.path(contender, seed))
            if directory.experiment_file.exists():
                check_resumable(directory, settled(runs.prepare(contender, seed), directory))


def read_contest(folder: Path) -> Contest:
    """Read the contest of a study's folder."""
    try:
        return Contest.parse((folder / FILE).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{folder} is not the folder of a study ({error.strerror}): give the --out of one") from None
    except ValueError as error:
        raise RunError(f"{folder / FILE} is damaged ({error}): give another --out") from None


def _joined(there: Contest, given: Contest) -> Contest:
    """Return the existing contest, extended by the given contenders, seeds and budget."""
    budget = Budget(
        there.budget.mb if given.budget.mb is None else given.budget.mb,
        there.budget.seconds if given.budget.seconds is None else given.budget.seconds,
    )
    return Contest(
        tuple(dict.fromkeys((*there.contenders, *given.contenders))),
        tuple(dict.fromkeys((*there.seeds, *given.seeds))),
        {**there.settings, **given.settings},
        tuple(dict.fromkeys((*there.set, *given.set))),
        budget,
    )


class Runs:
    """The runs of a contest, on data that are loaded once."""

    def __init__(self, contest: Contest, folder: Path) -> None:
        self.contest = contest
        self.folder = folder
        self.loader = Loader()

    def keep(self) -> None:
        """Write the checked contest into its folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / FILE, self.contest.text())

    def path(self, contender: str, seed: int) -> Path:
        """Return the run directory of a contender and seed."""
        return self.folder / self.contest.folder_of(contender, seed)

    def settings(self, contender: str, seed: int) -> dict[str, Any]:
        """Return all settings of a contender's run for one seed."""
        name, own = split_contender(contender)
        METHODS.check(name)
        try:
            found = assign({**self.contest.settings, "method": name, "seed": seed}, (*self.contest.set, *own))
            return until_stalled(found) if trains_alone(name) and "rounds" not in assign({}, own) else found
        except InputError as error:
            raise InputError(f"{contender}: {error}; what is one method's own is written {name}:KEY=VALUE") from None

    @property
    def rounds(self) -> int:
        """Return the rounds of the runs that send something."""
        return self.contest.rounds

    @property
    def engine(self) -> str:
        """Return the engine that the user named."""
        return str(self.settings(self.contest.contenders[0], self.contest.seeds[0]).get("engine", "auto"))

    def prepare(self, contender: str, seed: int) -> Prepared:
        """Prepare a contender's run for one seed."""
        return self.loader.prepare(self.settings(contender, seed), ORIGIN)

    def plan(self, contender: str, seed: int, until: StopCondition | None = None) -> RunPlan:
        """Plan a run to its end, to a round, or to the contest's budget."""
        until = until or StopCondition(budget=self.contest.budget)
        return RunPlan(self.path(contender, seed), self.settings(contender, seed), ORIGIN, until)

    def advance(self, contender: str, seed: int, until: StopCondition | None = None) -> None:
        """Continue one run in this process."""
        advance(self.plan(contender, seed, until), self.loader)

    def measured(self, contender: str, seed: int) -> MeasuredRun | None:
        """Return the measurements of a run so far; None if there are none and it has not diverged."""
        path = self.path(contender, seed)
        found = measure(path) if (path / "experiment.toml").exists() and (path / "about.json").exists() else None
        return found if found is not None and (found.measurements or found.diverged) else None


ORIGIN = "the command line"


@dataclass
class ContestWatcher:
    """Receives reports of a running study."""

    started: Callable[[str, int], None] = lambda contender, seed: None
    round: Callable[[str, int, RoundReport], None] = lambda contender, seed, report: None
    ended: Callable[[str, int, MeasuredRun | None], None] = lambda contender, seed, run: None


def run_contest(runs: Runs, watcher: ContestWatcher) -> dict[str, str]:
    """Execute all runs seed by seed, so that all methods have equally many; return failures with reasons.

    A method that diverges or does not fit the model leaves the contest; the others go on.
    """
    prepared = [runs.prepare(contender, runs.contest.seeds[0]) for contender in runs.contest.contenders]
    runs.keep()
    return take_on(runs, runs.contest.contenders, max(prepared, key=lambda one: one.seconds), watcher)


def take_on(
    runs: Runs, contenders: Sequence[str], like: Prepared, watcher: ContestWatcher, until: StopCondition | None = None
) -> dict[str, str]:
    """Continue runs of some contenders, seed by seed; `like` is the longest. Return failures with reasons."""
    failed: dict[str, str] = {}
    pairs = {runs.contest.folder_of(who, seed): (who, seed) for seed in runs.contest.seeds for who in contenders}

    def planned(contender: str, seed: int) -> RunPlan | None:
        alone = trains_alone(split_contender(contender)[0])  # it is in no race: nothing of it travels
        return None if contender in failed else runs.plan(contender, seed, None if alone else until)

    def ended(run: RunEnded) -> None:
        contender, seed = pairs[run.name]
        if isinstance(run.error, RunError):
            raise run.error
        if run.error is not None:
            failed.setdefault(contender, str(run.error))
        watcher.ended(contender, seed, runs.measured(contender, seed))

    todo = sum(not runs.plan(*pair).finished for pair in pairs.values())
    with place_for(like, todo, runs.folder, runs.engine, runs.loader) as place:
        run_many(
            [Planned(name, partial(planned, *pair)) for name, pair in pairs.items()],
            place,
            Watcher(
                started=lambda name: watcher.started(*pairs[name]),
                round=lambda name, report: watcher.round(*pairs[name], report),
                ended=ended,
            ),
        )
    return failed


def measured_groups(runs: Runs) -> dict[str, list[MeasuredRun]]:
    """Return the measured runs of each contender, by seed."""
    found = {one: [runs.measured(one, seed) for seed in runs.contest.seeds] for one in runs.contest.contenders}
    groups = {one: [run for run in group if run is not None] for one, group in found.items()}
    return {one: group for one, group in groups.items() if group}
