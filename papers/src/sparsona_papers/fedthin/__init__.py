"""FedThin, preregistered: papers/cards/fedthin.md has the protocol, this carries it out.

Unlike a paper's cases, these runs depend on each other: trials, then the runs of the chosen ones, then the long runs of
the best. All are cells (:mod:`sparsona_papers.fedthin.cells`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from sparsona_papers._paper import Kept, Size
from sparsona_papers._registry import PAPERS, Job, MissingRuns, no_such_size
from sparsona_papers._results import Results
from sparsona_papers._tables import Part
from sparsona_papers.fedthin.cells import CELLS, READING, kept_cells, read_cells, work
from sparsona_papers.fedthin.plan import SMALL, WHOLE, Cell, StudyPlan, finals, longest, tuning
from sparsona_papers.fedthin.tables import report


@dataclass(frozen=True)
class Preregistered:
    """The study in one size."""

    title: str
    size: Size
    plan: StudyPlan

    def run(self, job: Job) -> None:
        """Make the cells that are missing, and those that become known by them."""
        known = {} if job.again else job.kept.runs
        try:
            work(lambda found: ready(found, self.plan, job.only), job.out, job.where, job.say, known, READING)
        finally:  # also what was finished before an interruption
            found = kept_cells(read_cells(job.out / CELLS))
            if not found.items() <= job.kept.runs.items():
                job.kept.replace({**job.kept.runs, **found})

    def left(self, only: str, kept: Results, others: Sequence[Results]) -> MissingRuns:
        """Count the cells that are known by now and not kept. Others follow once these are run."""
        cells = ready(kept.runs, self.plan, only)
        names: dict[str, list[str]] = {}
        for cell in cells:
            if cell.name not in kept.runs:
                names.setdefault(f"{cell.task.name}-{cell.share:g}-{cell.row}", []).append(cell.name)
        return MissingRuns(len(cells), names)

    def tables(self, kept: Results) -> str:
        """The whole study as markdown."""
        return report(kept.runs, self.plan) if kept.runs else "Nothing has been run.\n"

    def part(self, kept: Results) -> Part:
        """No claims: the protocol's verdicts stand in the tables."""
        return Part(self.size, (), {})

    def draw(self, out: Path) -> list[Path]:
        """No figures."""
        return []

    def with_seeds_from(self, first: int) -> Preregistered:
        """The study with other seeds. Trials keep seed 0, so `first` is at least 1."""
        seeds = tuple(range(first, first + len(self.plan.seeds)))
        return replace(self, plan=replace(self.plan, seeds=seeds))


@PAPERS.add
def fedthin(size: Size) -> Preregistered:
    """Our own method against tuned rivals on fresh data; `quick` has a few rows on a development set."""
    if size == "quick":
        return Preregistered("FedThin on a development set", size, SMALL)
    if size == "whole":
        return Preregistered("FedThin, preregistered", size, WHOLE)
    raise no_such_size("fedthin", size)


def ready(found: Kept, plan: StudyPlan, only: str) -> list[Cell]:
    """The cells whose settings are known by now, trials first."""
    cells = [*tuning(plan), *finals(found, plan), *longest(found, plan)]
    return [cell for cell in cells if fnmatch(cell.name, only)]
