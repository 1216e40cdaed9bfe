"""Parallel runs in processes of this machine. Each process executes one run at a time, on one core or a few."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from sparsona.engines.child import ChildProcess, end_with_parent
from sparsona.engines.turns import MAX_DEATHS, Failure, caught
from sparsona.errors import SparsonaError
from sparsona.many import RunEnded
from sparsona.many.plan import Loader, RunPlan, advance
from sparsona.runs.records import RoundReport

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Done:
    """The run has reached its goal."""


@dataclass
class Assigned:
    """A run in a child process, with the number of children that died in it since its last round."""

    name: str
    plan: RunPlan
    deaths: int = 0


class Processes:
    """At most `size` runs at a time, each with `workers` cores."""

    def __init__(self, size: int, workers: int = 1) -> None:
        self._size, self._workers = size, workers
        self._idle: list[ChildProcess] = []
        self._at_work: dict[ChildProcess, Assigned] = {}

    @property
    def free(self) -> bool:
        """True if another run can start."""
        return len(self._at_work) < self._size

    @property
    def busy(self) -> bool:
        """True if a run is under way."""
        return bool(self._at_work)

    def start(self, name: str, plan: RunPlan) -> None:
        """Hand a run to a process."""
        own = replace(plan, settings={**plan.settings, "workers": self._workers})
        self._assign(Assigned(name, own))

    def _assign(self, run: Assigned) -> None:
        child = self._idle.pop() if self._idle else ChildProcess(__name__)
        self._at_work[child] = run
        try:
            child.connection.send(run.plan)
        except OSError:
            log.debug("a process ended before its first run")  # its connection ends, which wait() finds

    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        """Wait for news, report finished rounds, and return the runs that have ended."""
        ended = []
        readable = wait([child.connection for child in self._at_work])
        for child in [child for child in self._at_work if child.connection in readable]:
            run = self._at_work[child]
            try:
                message: RoundReport | Done | Failure = child.connection.recv()
            except (EOFError, OSError):
                ended += self._died(child, run)
                continue
            if isinstance(message, RoundReport):
                run.deaths = 0
                on_round(run.name, message)
                continue
            del self._at_work[child]
            self._idle.append(child)
            if isinstance(message, Done):
                ended.append(RunEnded(run.name))
            elif isinstance(message.error, SparsonaError):
                ended.append(RunEnded(run.name, message.error))
            else:
                message.raise_again()
        return ended

    def _died(self, child: ChildProcess, run: Assigned) -> list[RunEnded]:
        """Continue the run of a dead process in another one, unless it died twice without a new round."""
        del self._at_work[child]
        how = child.end()
        run.deaths += 1
        if run.deaths >= MAX_DEATHS:
            problem = f"{MAX_DEATHS} processes died ({how}) in the same round: if memory is short, use fewer --workers"
            return [RunEnded(run.name, SparsonaError(problem))]
        log.warning("the process of %s died (%s): the run is continued in another", run.name, how)
        self._assign(run)
        return []

    def close(self) -> None:
        """Stop all runs; they can be continued."""
        for child in self._at_work:
            child.end()
        for child in self._idle:
            child.end(kill=False)
        self._at_work, self._idle = {}, []


def main(connection: int, pipe: int) -> None:
    """Execute runs in a child process, one after another, and report every round."""
    end_with_parent(pipe)
    loader = Loader()
    parent: Connection[Any, Any] = Connection(connection)
    try:
        while True:
            plan: RunPlan = parent.recv()
            parent.send(caught(partial(_made, plan, loader, parent)))
    except (EOFError, OSError):
        os._exit(0)


def _made(plan: RunPlan, loader: Loader, parent: Connection[Any, Any]) -> Done:
    advance(plan, loader, parent.send)
    return Done()
