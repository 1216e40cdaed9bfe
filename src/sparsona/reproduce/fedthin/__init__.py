"""FedThin, preregistered: docs/papers/fedthin.md has the protocol, this carries it out.

Unlike a paper's cases, these depend on each other: trials, then the runs of the chosen ones, then the long runs of the
best. All are cells (:mod:`sparsona.reproduce.fedthin.cells`), which several processes may share out among them.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from sparsona.reproduce import PAPERS, Kept, Paper, Size, Study
from sparsona.reproduce.fedthin.cells import read_cells, without_tests_of_trials, work
from sparsona.reproduce.fedthin.plan import SMALL, WHOLE, Cell, StudyPlan, finals, longest, tuning
from sparsona.reproduce.fedthin.tables import report


@PAPERS.add
def fedthin(size: Size) -> Paper:
    """Our own method against tuned rivals on fresh data; `quick` has a few rows on a development set."""
    quick = size == "quick"
    plan = SMALL if quick else WHOLE

    def run(out: Path, only: str, say: Callable[[str], None], known: Kept) -> Kept:
        return work(lambda found: ready(found, plan, only), out / "cells", say, known)

    study = Study(run, lambda out: without_tests_of_trials(read_cells(out / "cells")), lambda kept: report(kept, plan))
    title = "FedThin on a development set" if quick else "FedThin, preregistered"
    return Paper(title, (), study=None if size in ("day", "paper") else study)


def ready(found: Kept, plan: StudyPlan, only: str) -> list[Cell]:
    """The cells whose settings are known by now, trials first."""
    cells = [*tuning(plan), *finals(found, plan), *longest(found, plan)]
    return [cell for cell in cells if fnmatch(cell.name, only)]
