"""Many runs: side by side in processes of this machine or on a Ray cluster, or one after another in this process.

A sweep, a comparison or a paper's experiment plans its runs and hands them to :func:`run_many`.
A run that is finished is not made again, and one that was interrupted is continued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparsona.errors import SparsonaError
from sparsona.many.plan import RunPlan
from sparsona.runs.records import RoundReport


@dataclass(frozen=True)
class Planned:
    """A run that is to come, by its name. It starts when all that it `needs` have ended.

    `make` gives its plan when it starts, or None where it is not wanted any more.
    """

    name: str
    make: Callable[[], RunPlan | None]
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RunEnded:
    """A run has come as far as it shall, or has failed with an error of ours."""

    name: str
    error: SparsonaError | None = None


class RunPlace(Protocol):
    """Where runs are made, some at a time."""

    @property
    def free(self) -> bool:
        """Whether another run can start."""

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""

    def start(self, name: str, plan: RunPlan) -> None:
        """Begin a run."""

    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        """Wait until something happens: tell of rounds, and return the runs that have ended."""

    def close(self) -> None:
        """Stop what is under way. A run that was stopped can be continued."""


@dataclass(frozen=True)
class Watcher:
    """What is told while runs are made, each by its name."""

    started: Callable[[str], None] = lambda name: None
    round: Callable[[str, RoundReport], None] = lambda name, report: None
    ended: Callable[[RunEnded], None] = lambda ended: None


def run_many(planned: Sequence[Planned], place: RunPlace, watcher: Watcher) -> None:
    """Make all runs. They start in their order, as soon as there is room and what they need has ended."""
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
