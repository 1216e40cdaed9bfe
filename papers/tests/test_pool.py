"""The pool's preregistered study: its plan, its verdicts on made-up numbers, and the whole way of a tiny one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsona.experiment import build
from sparsona.methods import METHODS
from sparsona_papers._results import Results
from sparsona_papers.fedthin.cells import pack, work
from sparsona_papers.pool.analysis import best, losing, verdicts
from sparsona_papers.pool.cells import READING
from sparsona_papers.pool.plan import DECISIVE, OURS, ROWS, SMALL, WHOLE, Cell, PoolPlan, ready, trials, tuning
from sparsona_papers.pool.tables import report
from sparsona_papers.pool.tasks import DEVELOPMENT, PoolTask
from sparsona_papers.reproduce import left

TINY = replace(SMALL, tasks=DEVELOPMENT[1:], rows=("local", "alone-linear", "together-net"), trials=1, rounds=2)


@pytest.fixture(autouse=True, scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARSONA_DATA", str(tmp_path_factory.mktemp("data")))
        yield


def test_every_row_that_has_something_to_tune_has_as_many_trials() -> None:
    for row in ROWS:
        drawn = trials(row, WHOLE)
        assert len(drawn) == (WHOLE.trials if ROWS[row].space else 1)
        assert len({tuple(sorted(d.items())) for d in drawn[1:]}) == len(drawn) - 1


def test_every_cell_is_an_experiment_with_the_same_steps() -> None:
    for cell in tuning(SMALL, [row for row in SMALL.rows if ROWS[row].method in METHODS.names()]):
        experiment, _ = build(cell.settings())
        steps = experiment.training.steps or 0
        owners = len(np.unique(cell.task.tests()[1])) if ROWS[cell.row].together else 1
        assert steps * ROWS[cell.row].models == 10 * owners


def test_a_tiny_study_ends_resumes_and_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    found = work(lambda known: ready(known, TINY), tmp_path, {"engine": "inprocess"}, told.append, {}, READING)
    assert len(found) == len(told) == 3 * (1 + len(TINY.seeds))
    assert all("loss" not in run for name, run in found.items() if name.endswith("-s0")), "trials see no test rows"
    again: list[str] = []
    assert work(lambda known: ready(known, TINY), tmp_path, {"engine": "inprocess"}, again.append, {}, READING) == found
    assert not again
    table = report(found, TINY)
    assert "together-net" in table
    assert "open: runs are missing" in table
    assert found["diabetes-local-t0-s1"]["loss"] != found["diabetes-local-t0-s2"]["loss"]


def made_up(plan: PoolPlan, losses: dict[str, float], sent: dict[str, float]) -> dict[str, Any]:
    """Cells of a study in which every row has the same loss everywhere, but for a little chance."""
    rng, out = np.random.default_rng(0), {}
    for task in plan.tasks:
        owners = np.sort(task.tests()[1])
        for row in plan.rows:
            for trial in range(len(trials(row, plan))):
                out[Cell(task, row, trial, 0, plan).name] = {"validation": {"loss": losses[row] + trial}}
            for seed in plan.seeds:
                rows = np.clip(losses[row] + rng.normal(0, 0.05, len(owners)), 0, None)
                means = [float(rows[owners == name].mean()) for name in np.unique(owners)]
                out[Cell(task, row, 0, seed, plan).name] = {
                    "loss": means, "score": [1 - mean for mean in means], "others": {}, "validation": {"loss": 0.0},
                    "tests": np.unique(owners, return_counts=True)[1].tolist(),
                    "models": {"up": sent.get(row, 0.0), "down": 0.0},
                    "rows": pack(np.rint(32 * rows).astype(np.uint8)),
                }  # fmt: skip
    return out


@pytest.mark.parametrize("ours", [0.5, 2.0])
def test_verdicts_follow_the_numbers(ours: float) -> None:
    plan = replace(SMALL, rows=tuple(DECISIVE))
    losses = {**dict.fromkeys(DECISIVE, 1.0), OURS: ours, "alone-linear": 0.9}
    found = made_up(plan, losses, {OURS: 1.0, "fedavg-trees": 20.0})
    task: PoolTask = plan.tasks[0]
    assert best(found, plan, task, ("local", "alone-linear")) == "alone-linear"
    assert [one.supported for one in verdicts(found, plan)] == [ours < 1] * 5
    assert losing(found, plan, task, OURS, "alone-linear") == (0.0 if ours < 1 else 1.0)
    dense = {**found, **made_up(plan, losses, {OURS: 1.0, "fedavg-trees": 9.0})}
    assert verdicts(dense, plan)[1].supported is False, "nine times the bytes are not ten"


def test_a_missing_run_leaves_the_claims_open() -> None:
    plan = replace(SMALL, rows=tuple(DECISIVE))
    found = made_up(plan, dict.fromkeys(DECISIVE, 1.0), {OURS: 1.0, "fedavg-trees": 20.0})
    del found[Cell(plan.tasks[1], OURS, 0, 2, plan).name]
    assert [one.supported for one in verdicts(found, plan)] == [None] * 5


def test_decisive_rows_come_first(tmp_path: Path) -> None:
    assert {cell.row for cell in ready({}, SMALL)} == set(DECISIVE)
    assert left("pool", "quick", results=tmp_path).asked == len(ready(Results().runs, SMALL))
