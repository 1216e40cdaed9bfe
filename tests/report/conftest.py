"""A small comparison that has everything a report can show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sparsona
from sparsona.studies.contest import Contest, Runs, run_contest
from sparsona.studies.declared import declare

METHODS = ("local", "fedavg-ft", "spfl", "pfednet", "fedspa", "pfedgate")


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison: similarity (spfl), a network (pfednet), masks (fedspa) and gates (pfedgate)."""
    folder = tmp_path_factory.mktemp("studies") / "comparison"
    # Three rounds for all, also for the way alone: the pages are about methods that are close to each other.
    settings = {"clients": 5, "rounds": 3, "engine": "inprocess", "evaluation": {"patience": 0}}
    contest = declare(folder, Contest(METHODS, (0, 1), settings), resume=False)
    assert run_contest(Runs(contest, folder)) == {}
    return folder


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs of fedavg with two privacy budgets, and without one."""
    folder = tmp_path_factory.mktemp("private")
    settings: dict[str, Any] = {"clients": 2, "rounds": 2, "engine": "inprocess", "partition": "iid"}
    for name, budget in (("open", {}), ("one", {"epsilon": 1.0}), ("eight", {"epsilon": 8.0})):
        sparsona.run("fedavg", out=folder / name, privacy=budget, **settings)
    return folder
