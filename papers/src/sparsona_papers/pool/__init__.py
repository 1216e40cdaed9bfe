"""The pool, preregistered: papers/cards/pool.md has the protocol, this carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from sparsona_papers._paper import Kept, Size
from sparsona_papers._registry import PAPERS, Job, MissingRuns, no_such_size
from sparsona_papers._results import Results
from sparsona_papers._tables import Part
from sparsona_papers.fedthin.cells import CELLS, read_cells, work
from sparsona_papers.pool.cells import READING
from sparsona_papers.pool.plan import SMALL, WHOLE, Cell, PoolPlan, ready
from sparsona_papers.pool.tables import report


@dataclass(frozen=True)
class PoolStudy:
    """The study in one size."""

    title: str
    size: Size
    plan: PoolPlan

    def run(self, job: Job) -> None:
        """Make the cells that are missing, and those that become known by them."""
        known = {} if job.again else job.kept.runs
        try:
            work(lambda found: self._asked(found, job.only), job.out, job.where, job.say, known, READING)
        finally:  # also what was finished before an interruption
            found = read_cells(job.out / CELLS)
            if not found.items() <= job.kept.runs.items():
                job.kept.replace({**job.kept.runs, **found})

    def left(self, only: str, kept: Results, others: Sequence[Results]) -> MissingRuns:
        """Count the cells that are known by now and not kept. Others follow once these are run."""
        cells, names = self._asked(kept.runs, only), dict[str, list[str]]()
        for cell in cells:
            if cell.name not in kept.runs:
                names.setdefault(f"{cell.task.name}-{cell.row}", []).append(cell.name)
        return MissingRuns(len(cells), names)

    def tables(self, kept: Results) -> str:
        """The whole study as markdown."""
        return report(kept.runs, self.plan) if kept.runs else "Nothing has been run.\n"

    def part(self, kept: Results) -> Part:
        """No claims of a paper: the protocol's verdicts stand in the tables."""
        return Part(self.size, (), {})

    def draw(self, out: Path) -> list[Path]:
        """No figures."""
        return []

    def with_seeds_from(self, first: int) -> PoolStudy:
        """The study with other seeds. Trials keep seed 0, so `first` is at least 1."""
        seeds = tuple(range(first, first + len(self.plan.seeds)))
        return replace(self, plan=replace(self.plan, seeds=seeds))

    def _asked(self, found: Kept, only: str) -> list[Cell]:
        return [cell for cell in ready(found, self.plan) if fnmatch(cell.name, only)]


@PAPERS.add
def pool(size: Size) -> PoolStudy:
    """Pools of experts against tuned rivals on fresh data; `quick` has a few rows on development sets."""
    if size == "quick":
        return PoolStudy("The pool on development sets", size, SMALL)
    if size == "whole":
        return PoolStudy("The pool, preregistered", size, WHOLE)
    raise no_such_size("pool", size)
