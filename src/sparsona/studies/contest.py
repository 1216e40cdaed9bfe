"""The runs of a study: which they are, where they stand, and how one is taken a piece further.

A study is a folder of runs and a file that declares it. Every run can be stopped after any round and continued; what a
study says is computed from the runs' files, so a study that was killed ends as one that was not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sparsona.api import execute
from sparsona.data.dataset import Dataset
from sparsona.errors import InputError, RunError, SparsonaError
from sparsona.experiment import Experiment, assign, read
from sparsona.files import write_atomically
from sparsona.methods import METHODS
from sparsona.prepare import Prepared, prepare
from sparsona.report.comparison import Budget
from sparsona.report.measured import MeasuredRun, measure
from sparsona.report.tensorboard import scalars, told_to
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import RoundReport

FILE = "study.json"
ALWAYS = ("local", "fedavg-ft")
"""Who is in every comparison: training alone, and the plainest way to be personal."""


@dataclass(frozen=True)
class Contest:
    """Contenders, the seeds for each, what they share, and what each run may spend."""

    contenders: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    set: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)

    def with_always(self) -> Contest:
        """With those that every comparison has."""
        missing = tuple(name for name in ALWAYS if name not in self.contenders)
        return replace(self, contenders=(*missing, *self.contenders))

    def text(self) -> str:
        """The contest as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def parse(cls, text: str) -> Contest:
        """The contest that a JSON text holds."""
        raw = json.loads(text)
        return cls(
            tuple(raw["contenders"]),
            tuple(raw["seeds"]),
            raw["settings"],
            tuple(raw["set"]),
            Budget(**raw["budget"]),
        )


def split_contender(text: str) -> tuple[str, list[str]]:
    """A contender's method and its own settings.

    >>> split_contender("fedspa:density=[0.2, 0.5],mask_1d=true")
    ('fedspa', ['density=[0.2, 0.5]', 'mask_1d=true'])
    """
    name, _, rest = text.partition(":")
    return name, re.split(r",\s*(?=[A-Za-z_][\w.]*=)", rest) if rest else []


def folder_of(contender: str, seed: int) -> str:
    """The name of a run's folder in the study.

    >>> folder_of("fedprox:mu=0.5", 3)
    'fedprox-mu-0.5-seed3'
    """
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', contender).strip('-')}-seed{seed}"


def declare(folder: Path, contest: Contest, resume: bool) -> Contest:
    """Take a folder for a contest. With `resume` the contest that is there goes on, with whatever is added to it."""
    file = folder / FILE
    if file.exists():
        if not resume:
            raise RunError(f"{folder} already holds a study: add --resume to continue it, or choose another --out")
        contest = _joined(read_contest(folder), contest)
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is not the folder of a study: choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, contest.text())
    return contest


def read_contest(folder: Path) -> Contest:
    """The contest of a study's folder."""
    try:
        return Contest.parse((folder / FILE).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{folder} is not the folder of a study ({error.strerror}): give the --out of one") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / FILE} is damaged ({error}): give another --out") from None


def _joined(there: Contest, given: Contest) -> Contest:
    """The contest in a folder, with the contenders, seeds and budget that are given now."""
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
    """Makes the runs of a contest, on data that are loaded once."""

    def __init__(self, contest: Contest, folder: Path, tensorboard: bool = False) -> None:
        self.contest = contest
        self.folder = folder
        self.tensorboard = tensorboard
        self._data: Dataset | None = None

    def path(self, contender: str, seed: int) -> Path:
        """The run directory of a contender and seed."""
        return self.folder / folder_of(contender, seed)

    def prepare(self, contender: str, seed: int) -> Prepared:
        """A contender's run for one seed, ready to start."""
        name, own = split_contender(contender)
        METHODS.check(name)
        try:
            settings = assign({**self.contest.settings, "method": name, "seed": seed}, (*self.contest.set, *own))
        except InputError as error:
            raise InputError(f"{contender}: {error}; what is one method's own is written {name}:KEY=VALUE") from None
        prepared = prepare(settings, loaded=self._data, origin="the command line")
        self._data = prepared.loaded
        return prepared

    def _rounds(self) -> int:
        return int(self.contest.settings.get("rounds", Experiment.model_fields["rounds"].default))

    def advance(
        self,
        contender: str,
        seed: int,
        enough: Callable[[int, float, float], bool],
        on_round: Callable[[RoundReport], None] = lambda report: None,
    ) -> None:
        """Take a run on until it is finished, or has done and spent enough: rounds, bytes, simulated seconds."""
        directory = RunDirectory(self.path(contender, seed))
        there = directory.experiment_file.exists()
        planned = int(read(directory.experiment_file)["rounds"]) if there else 0
        if directory.summary_file.exists() and planned >= self._rounds():
            return
        rounds, spent, clock = _state(directory) if there else (0, 0.0, 0.0)
        if 0 < rounds < planned and enough(rounds, spent, clock):
            return
        prepared = self.prepare(contender, seed)

        def watch(report: RoundReport) -> None:
            nonlocal spent
            spent += report.up.total + report.down.total
            on_round(report)
            if report.round < prepared.experiment.rounds and enough(report.round, spent, report.clock):
                raise Enough

        with ExitStack() as stack:
            watchers: list[Callable[[RoundReport], None]] = [watch]
            if self.tensorboard:
                watchers.insert(0, stack.enter_context(scalars(directory.path)))
            try:
                execute(prepared, directory, there, told_to(watchers))
            except Enough:
                return

    def measured(self, contender: str, seed: int) -> MeasuredRun | None:
        """The run as far as it is; None where it has not been measured yet."""
        path = self.path(contender, seed)
        found = measure(path) if (path / "experiment.toml").exists() and (path / "about.json").exists() else None
        return found if found is not None and found.measurements else None


class Enough(Exception):
    """A run has come as far as it shall."""


def _state(directory: RunDirectory) -> tuple[int, float, float]:
    """Complete rounds, bytes and simulated seconds of a run that goes on."""
    lines = directory.lines()
    return (
        Checkpointer(directory.checkpoint).progress().done,
        float(sum(line.up.total + line.down.total for line in lines)),
        max((line.clock for line in lines), default=0.0),
    )


@dataclass
class Watcher:
    """What a study tells while it runs."""

    started: Callable[[str, int], None] = lambda contender, seed: None
    round: Callable[[str, int, RoundReport], None] = lambda contender, seed, report: None
    ended: Callable[[str, int, MeasuredRun | None], None] = lambda contender, seed, run: None


def run_contest(runs: Runs, watcher: Watcher) -> dict[str, str]:
    """All runs, seed by seed, so that every method has as many as the others. Returns who failed, and why.

    A method that diverges or does not fit the model leaves the contest; the others go on.
    """
    contest = runs.contest
    for contender in contest.contenders:
        runs.prepare(contender, contest.seeds[0])
    failed: dict[str, str] = {}
    for seed in contest.seeds:
        for contender in contest.contenders:
            if contender in failed:
                continue
            watcher.started(contender, seed)
            try:
                runs.advance(
                    contender,
                    seed,
                    lambda rounds, sent, clock: contest.budget.spent(sent, clock),
                    lambda report, who=contender, seed=seed: watcher.round(who, seed, report),  # type: ignore[misc]
                )
            except RunError:
                raise
            except SparsonaError as error:
                failed[contender] = str(error)
            watcher.ended(contender, seed, runs.measured(contender, seed))
    return failed


def measured_groups(runs: Runs, contenders: Sequence[str] | None = None) -> dict[str, list[MeasuredRun]]:
    """The runs of each contender that have been measured, by their seeds."""
    chosen = runs.contest.contenders if contenders is None else contenders
    found = {one: [runs.measured(one, seed) for seed in runs.contest.seeds] for one in chosen}
    groups = {one: [run for run in group if run is not None] for one, group in found.items()}
    return {one: group for one, group in groups.items() if group}
