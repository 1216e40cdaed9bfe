"""Runs one after another in this process, each with the engine that it names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sparsona.errors import SparsonaError
from sparsona.many import RunEnded
from sparsona.many.plan import Loader, RunPlan, advance
from sparsona.runs.records import RoundReport


class Sequential:
    """One run at a time. `loader` may hold the data already."""

    def __init__(self, loader: Loader | None = None) -> None:
        self._loader = loader or Loader()
        self._next: tuple[str, RunPlan] | None = None

    @property
    def free(self) -> bool:
        """Whether another run can start."""
        return self._next is None

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._next is not None

    def start(self, name: str, plan: RunPlan) -> None:
        """Have a run made by the next :meth:`wait`."""
        self._next = name, plan

    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        """Wait until something happens: tell of rounds, and return the runs that have ended."""
        assert self._next is not None
        (name, plan), self._next = self._next, None
        try:
            advance(plan, self._loader, partial(on_round, name))
        except SparsonaError as error:
            return [RunEnded(name, error)]
        return [RunEnded(name)]

    def close(self) -> None:
        """Stop what is under way; it can be continued."""
        self._next = None
