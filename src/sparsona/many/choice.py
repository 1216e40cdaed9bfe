"""Choose where several runs are executed: one by one, in parallel processes, or on a cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from sparsona.engines.choice import WORTHWHILE
from sparsona.errors import SparsonaError
from sparsona.federation.resources import Resources
from sparsona.many import RunEnded, RunPlace
from sparsona.many.plan import Loader, RunPlan, advance
from sparsona.many.processes import Processes
from sparsona.prepare import Prepared
from sparsona.runs.records import RoundReport
from sparsona.system import cores


class Sequential:
    """One run at a time. `loader` may hold the data already."""

    def __init__(self, loader: Loader | None = None) -> None:
        self._loader = loader or Loader()
        self._next: tuple[str, RunPlan] | None = None

    @property
    def free(self) -> bool:
        """True if another run can start."""
        return self._next is None

    @property
    def busy(self) -> bool:
        """True if a run is under way."""
        return self._next is not None

    def start(self, name: str, plan: RunPlan) -> None:
        """Queue a run for the next :meth:`wait`."""
        self._next = name, plan

    def wait(self, on_round: Callable[[str, RoundReport], None]) -> list[RunEnded]:
        """Execute the queued run, report its rounds, and return it."""
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
