"""Where several runs are executed: one by one, or in parallel processes with one core or a few each."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from sparsona.engines.child import ChildProcess, end_with_parent
from sparsona.engines.choice import WORTHWHILE
from sparsona.engines.turns import MAX_DEATHS, Failure, caught
from sparsona.errors import SparsonaError
from sparsona.federation.resources import Resources
from sparsona.many import Loader, RunEnded, RunPlace, RunPlan, advance, ended
from sparsona.prepare import Prepared
from sparsona.runs.records import RoundReport
from sparsona.system import cores

log = logging.getLogger(__name__)


@dataclass
class Assigned:
    """A run in a child process, with the number of children that died in it since its last round."""

    name: str
    plan: RunPlan
    deaths: int = 0


class Processes(RunPlace):
    """At most `size` runs at a time, each in a child process with `workers` cores."""

    def __init__(self, size: int, workers: int = 1) -> None:
        super().__init__(size)
        self._workers = workers
        self._idle: list[ChildProcess] = []

    def start(self, name: str, plan: RunPlan) -> None:
        self._assign(Assigned(name, replace(plan, settings={**plan.settings, "workers": self._workers})))

    def _assign(self, run: Assigned) -> None:
        child = self._idle.pop() if self._idle else ChildProcess(__name__)
        self.at_work[child] = run
        try:
            child.connection.send(run.plan)
        except OSError:
            log.debug("a process ended before its first run")  # its connection ends, which wait() finds

    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        over = []
        readable = wait([child.connection for child in self.at_work])
        for child in [child for child in self.at_work if child.connection in readable]:
            run = self.at_work[child]
            try:
                message: RoundReport | Failure | None = child.connection.recv()
            except (EOFError, OSError):
                over += self._died(child, run)
                continue
            if isinstance(message, RoundReport):
                run.deaths = 0
                on_round(run.name, message)
                continue
            del self.at_work[child]
            self._idle.append(child)
            over.append(ended(run.name, message))
        return over

    def _died(self, child: ChildProcess, run: Assigned) -> list[RunEnded]:
        """Continue the run of a dead process in another one, unless it died twice without a new round."""
        del self.at_work[child]
        how = child.end()
        run.deaths += 1
        if run.deaths >= MAX_DEATHS:
            problem = f"{MAX_DEATHS} processes died ({how}) in the same round: if memory is short, use fewer --workers"
            return [RunEnded(run.name, SparsonaError(problem))]
        log.warning("the process of %s died (%s): the run is continued in another", run.name, how)
        self._assign(run)
        return []

    def close(self) -> None:
        for child in self.at_work:
            child.end()
        for child in self._idle:
            child.end(kill=False)
        self.at_work, self._idle = {}, []


def main(connection: int, pipe: int) -> None:
    """Execute runs in a child process, one after another, and report every round."""
    end_with_parent(pipe)
    loader = Loader()
    parent: Connection[Any, Any] = Connection(connection)
    try:
        while True:
            plan: RunPlan = parent.recv()
            parent.send(caught(partial(advance, plan, loader, parent.send)))
    except (EOFError, OSError):
        os._exit(0)


class Sequential(RunPlace):
    """One run at a time in this process: it is executed by :meth:`wait`. `loader` may hold the data already."""

    def __init__(self, loader: Loader | None = None) -> None:
        super().__init__()
        self._loader = loader or Loader()

    def start(self, name: str, plan: RunPlan) -> None:
        self.at_work[name] = plan

    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        name, plan = self.at_work.popitem()
        try:
            advance(plan, self._loader, partial(on_round, name))
        except SparsonaError as error:
            return [RunEnded(name, error)]
        return [RunEnded(name)]

    def close(self) -> None:
        self.at_work.clear()


@contextmanager
def place_for(
    first: Prepared, runs: int, folder: Path, engine: str = "auto", loader: Loader | None = None
) -> Iterator[RunPlace]:
    """Open a place to execute `runs` runs like `first` into `folder`; it is closed when the block ends.

    `engine` is the user's choice. Runs are parallel if that is faster; the engine `pool` gives all cores to one run.
    """
    asked = first.experiment
    place: RunPlace
    if engine == "ray":
        from sparsona.many.cluster import OnCluster

        place = OnCluster(Resources(asked.workers, asked.cluster), folder)
    else:
        most = min(asked.workers or cores(), cores())
        side = side_by_side(runs, most, runs * first.seconds, engine)
        place = Sequential(loader) if side < 2 else Processes(side, max(1, most // side))
    try:
        yield place
    finally:
        place.close()


def side_by_side(runs: int, most: int, seconds: float, engine: str) -> int:
    """Return how many of `runs` runs are executed at a time on `most` cores, given their `seconds` on one core.

    >>> side_by_side(40, 8, 3600.0, "auto"), side_by_side(3, 8, 3600.0, "auto")
    (8, 3)
    >>> side_by_side(40, 8, 3.0, "auto"), side_by_side(40, 8, 3600.0, "pool")
    (1, 1)
    """
    return 1 if engine not in ("auto", "inprocess") or seconds < WORTHWHILE else min(runs, most)
