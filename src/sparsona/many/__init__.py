"""Many runs: side by side in processes of this machine or on a Ray cluster, or one after another in this process.

A sweep, a comparison or a paper's experiment plans its runs and hands them to :func:`run_many`.
A run that is finished is not made again, and one that was interrupted is continued.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparsona.errors import SparsonaError
from sparsona.many.plan import RunPlan
from sparsona.runs.records import RoundReport


@dataclass(frozen=True)
class Planned:
    """A planned run, by its name. It starts when all runs that it `needs` have ended.

    `make` returns its plan when it starts, or None if the run is no longer wanted.
    """

    name: str
    make: Callable[[], RunPlan | None]
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RunEnded:
    """A run that reached its goal, or failed with one of our errors."""

    name: str
    error: SparsonaError | None = None


class RunPlace(Protocol):
    """A place where runs are executed, some at a time."""

    @property
    def free(self) -> bool:
        """True if another run can start."""

    @property
    def busy(self) -> bool:
        """True if a run is under way."""

    def start(self, name: str, plan: RunPlan) -> None:
        """Begin a run."""

    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        """Wait for news, report finished rounds, and return the runs that have ended."""

    def close(self) -> None:
        """Stop all runs; a stopped run can be continued."""


@dataclass(frozen=True)
class Watcher:
    """Receives reports while runs are executed, by their names."""

    started: Callable[[str], None] = lambda name: None
    round: Callable[[str, RoundReport], None] = lambda name, report: None
    ended: Callable[[RunEnded], None] = lambda ended: None


def run_many(planned: Sequence[Planned], place: RunPlace, watcher: Watcher) -> None:
    """Execute all runs in their order, each as soon as there is room and the runs that it needs have ended."""
    waiting, done = list(planned), set[str]()
    while waiting or place.busy:
        while place.free and (ready := next((one for one in waiting if one.needs <= done), None)):
            waiting.remove(ready)
            plan = ready.make()
            if plan is None:
                done.add(ready.name)
                continue
            watcher.started(ready.name)
            place.start(ready.name, plan)
        if not place.busy:
            if waiting and not any(one.needs <= done for one in waiting):
                raise AssertionError(f"{waiting[0].name} needs runs that are not planned: {waiting[0].needs - done}")
            continue
        for ended in place.wait(watcher.round):
            done.add(ended.name)
            watcher.ended(ended)
