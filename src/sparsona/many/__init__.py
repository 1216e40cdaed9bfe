"""Many runs: side by side in processes of this machine or on a Ray cluster, or one after another in this process.

A sweep, a comparison or a paper's experiment plans its runs and hands them to :func:`run_many`.
A run that is finished is not made again, and one that was interrupted is continued.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparsona.api import execute
from sparsona.data.dataset import Dataset
from sparsona.engines.turns import Failure
from sparsona.errors import SparsonaError
from sparsona.experiment import read, rounds_of
from sparsona.prepare import Prepared, prepare
from sparsona.rate import settled
from sparsona.resume import check_resumable
from sparsona.runs.budget import Budget
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import RoundReport


@dataclass(frozen=True)
class StopCondition:
    """The goal of a run that stops before its end: a number of rounds, or a budget.

    >>> StopCondition(rounds=3).reached(2, 1e9, 0.0), StopCondition(budget=Budget(mb=1)).reached(2, 1e9, 0.0)
    (False, True)
    """

    rounds: float = math.inf
    budget: Budget = field(default_factory=Budget)

    def reached(self, rounds: int, sent: float, clock: float) -> bool:
        """True if a run with these rounds and costs has reached the goal."""
        return rounds >= self.rounds or self.budget.spent(sent, clock)


@dataclass(frozen=True)
class RunPlan:
    """A run in a folder. It can be sent to another process, so `after_round` is a function of a module.

    `origin` names the source of the settings in error lines. `after_round` is called with the run's directory and each
    round's report, in the process that executes the run.
    """

    folder: Path
    settings: Mapping[str, Any]
    origin: str = "the experiment"
    until: StopCondition = field(default_factory=StopCondition)
    after_round: Callable[[RunDirectory, RoundReport], None] | None = None

    @property
    def rounds(self) -> int:
        """Return the number of rounds of the finished run."""
        return rounds_of(self.settings)

    @property
    def finished(self) -> bool:
        """True if the folder has the run with all its rounds."""
        directory = RunDirectory(self.folder)
        return directory.summary_file.exists() and _planned_rounds(directory) >= self.rounds


class Loader:
    """Prepares experiments, and keeps the data of the last one for the next."""

    def __init__(self) -> None:
        self._kept: tuple[str, Dataset] | None = None

    def prepare(self, settings: Mapping[str, Any], origin: str) -> Prepared:
        """Return an experiment that is ready to start."""
        named = [settings.get("data"), settings.get("columns"), settings.get("split", {}).get("by")]
        key = json.dumps(named, sort_keys=True, default=str)
        loaded = self._kept[1] if self._kept is not None and self._kept[0] == key else None
        self._kept = None  # another data set need not fit into memory beside it
        prepared = prepare(settings, loaded=loaded, origin=origin)
        self._kept = key, prepared.loaded
        return prepared


def advance(plan: RunPlan, loader: Loader, on_round: Callable[[RoundReport], None] = lambda report: None) -> None:
    """Continue a run to its goal; another experiment or other data in its folder are refused."""
    directory = RunDirectory(plan.folder)
    there = directory.experiment_file.exists()
    prepared = loader.prepare(plan.settings, plan.origin)
    if there:
        prepared = settled(prepared, directory)
        check_resumable(directory, prepared)
    if plan.finished:
        return
    rounds, spent, clock = _state(directory) if there else (0, 0.0, 0.0)
    if there and 0 < rounds < _planned_rounds(directory) and plan.until.reached(rounds, spent, clock):
        return

    def watch(report: RoundReport) -> None:
        nonlocal spent
        spent += report.up.total + report.down.total
        if plan.after_round is not None:
            plan.after_round(directory, report)
        on_round(report)
        if report.round < prepared.experiment.rounds and plan.until.reached(report.round, spent, report.clock):
            raise StopRun

    with suppress(StopRun):
        execute(prepared, directory, there, watch)


class StopRun(Exception):
    """Raised when a run has reached its goal."""


def _planned_rounds(directory: RunDirectory) -> int:
    return int(read(directory.experiment_file)["rounds"])


def _state(directory: RunDirectory) -> tuple[int, float, float]:
    """Return complete rounds, bytes and simulated seconds of an unfinished run."""
    lines = directory.lines()
    return (
        Checkpointer(directory.checkpoint).progress().done,
        float(sum(line.up.total + line.down.total for line in lines)),
        max((line.clock for line in lines), default=0.0),
    )


@dataclass(frozen=True)
class Planned:
    """A planned run. It starts when all that it `needs` have ended; `make` returns its plan, or None to drop it."""

    name: str
    make: Callable[[], RunPlan | None]
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RunEnded:
    """A run that reached its goal, or failed with one of our errors."""

    name: str
    error: SparsonaError | None = None


class RunPlace(ABC):
    """A place where at most `size` runs are executed at a time."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.at_work: dict[Any, Any] = {}
        """The runs under way."""

    @property
    def free(self) -> bool:
        """True if another run can start."""
        return len(self.at_work) < self.size

    @abstractmethod
    def start(self, name: str, plan: RunPlan) -> None:
        """Begin a run."""

    @abstractmethod
    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        """Wait for news, report finished rounds, and return the runs that have ended."""

    @abstractmethod
    def close(self) -> None:
        """Stop all runs; a stopped run can be continued."""


def ended(name: str, failure: Failure | None) -> RunEnded:
    """Return how a run ended in another process; an error that is not ours is raised here."""
    if failure is None:
        return RunEnded(name)
    if isinstance(failure.error, SparsonaError):
        return RunEnded(name, failure.error)
    failure.raise_again()


@dataclass(frozen=True)
class Watcher:
    """Receives reports while runs are executed, by their names."""

    started: Callable[[str], None] = lambda name: None
    round: Callable[[str, RoundReport], None] = lambda name, report: None
    ended: Callable[[RunEnded], None] = lambda ended: None


def run_many(planned: Sequence[Planned], place: RunPlace, watcher: Watcher) -> None:
    """Execute all runs in their order, each as soon as there is room and the runs that it needs have ended."""
    waiting, done = list(planned), set[str]()
    while waiting or place.at_work:
        while place.free and (ready := next((one for one in waiting if one.needs <= done), None)):
            waiting.remove(ready)
            plan = ready.make()
            if plan is None:
                done.add(ready.name)
                continue
            watcher.started(ready.name)
            place.start(ready.name, plan)
        if not place.at_work:
            if waiting and not any(one.needs <= done for one in waiting):
                raise AssertionError(f"{waiting[0].name} needs runs that are not planned: {waiting[0].needs - done}")
            continue
        for ended in place.wait(watcher.round):
            done.add(ended.name)
            watcher.ended(ended)
