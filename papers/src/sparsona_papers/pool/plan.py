"""The plan of the study: rows with equally many trials if they have options to tune, and cells.

A cell is one run. Trials train with seed 0; the one with the lowest loss on validation rows is run with five seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from sparsona.experiment import assign
from sparsona.methods import METHODS
from sparsona_papers._paper import Kept
from sparsona_papers.pool.tasks import DEVELOPMENT, TASKS, PoolTask

RATES = {"lr": (0.03, 0.1, 0.3)}
STEP = {**RATES, "server.lr": (1.0, 2.0), "server.momentum": (0.0, 0.5, 0.9)}
MEAN = {"personal.average": (0.0, 0.7)}
BOTH = {**STEP, **MEAN}
THIN = {**STEP, "density": (0.1, 0.2)}
EQUAL_STEPS, EVERY = 10, 3


@dataclass(frozen=True)
class Row:
    """A row: a method with fixed options, its search space, and the number of nets that a turn trains.

    Every turn takes the same number of gradient steps, so a method that trains two nets has half for each. `together`:
    one client has all clients' rows, and as many steps as they have together.
    """

    method: str
    space: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    models: int = 1
    together: bool = False
    classes: bool = False
    """Whether it is for tasks with classes only."""


DECISIVE: dict[str, Row] = {
    "local": Row("local", {**RATES, **MEAN, "evaluation.keep": ("best", "best-per-client")}),
    "alone-trees": Row("alone-trees"),
    "alone-linear": Row("alone-linear"),
    "alone-pool": Row("local", {**RATES, **MEAN}, ("pool=trees+linear+alone",)),
    "fedavg-trees": Row("fedavg", STEP, ("pool=trees+shared",)),
    "fedthin-pool": Row("fedthin", THIN, ("pool=trees+shared",)),
    "together-trees": Row("alone-trees", together=True),
    "together-net": Row("local", {**RATES, **MEAN}, together=True),
}
"""Rows that the claims are about. They are run first."""
OTHERS: dict[str, Row] = {
    "fedavg": Row("fedavg", BOTH),
    "fedthin": Row("fedthin", {**THIN, **MEAN}),
    "fedthin-all": Row("fedthin", THIN, ("pool=all",), models=2),
    "fedavg-ft": Row("fedavg-ft", BOTH),
    "ditto": Row("ditto", {**BOTH, "lam": (0.1, 0.5, 2.0)}, models=2),
    "apfl": Row("apfl", {**BOTH, "alpha": (0.25, 0.5, 0.75)}, models=2),
    "fedala": Row("fedala", BOTH),
    "fedpse": Row("fedpse", {**BOTH, "sparsity": (0.8, 0.9)}),
    "fedstc": Row("fedstc", {**BOTH, "sparsity": (0.8, 0.9)}),
    "topk": Row("topk", {**BOTH, "density": (0.1, 0.2)}),
    "pfed1bs": Row("pfed1bs", RATES),
    "knn-per": Row("knn-per", STEP, classes=True),
}
"""Rows that no claim uses."""
ROWS = {**DECISIVE, **OTHERS}
OURS, DENSE, UNSHARED = "fedthin-pool", "fedavg-trees", "alone-pool"
ALONE = ("local", "alone-trees", "alone-linear")
FORBIDDEN = ("together-trees", "together-net")


@dataclass(frozen=True)
class PoolPlan:
    """The size of a study."""

    tasks: tuple[PoolTask, ...]
    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    trials: int
    rounds: int


WHOLE = PoolPlan(TASKS, tuple(ROWS), (1, 2, 3, 4, 5), 4, 30)
SMALL = PoolPlan(DEVELOPMENT, (*DECISIVE, "fedavg", "fedthin"), (1, 2), 2, 6)


@dataclass(frozen=True)
class Cell:
    """One run: a trial of a row on a task."""

    task: PoolTask
    row: str
    trial: int
    seed: int
    plan: PoolPlan

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.task.name}-{self.row}-t{self.trial}-s{self.seed}"

    @property
    def cost(self) -> float:
        """Return the same cost for all cells."""
        return 1.0

    def settings(self) -> dict[str, Any]:
        """The experiment."""
        row = ROWS[self.row]
        owners = len(np.unique(self.task.tests()[1])) if row.together else 1
        shared: dict[str, Any] = {
            "method": row.method,
            "data": f"npz:{self.task.path(row.together)}",
            "model": self.task.model,
            "partition": "groups",
            "clients": 0,
            "rounds": self.plan.rounds,
            "seed": self.seed,
            "engine": "inprocess",
            "training": {"steps": EQUAL_STEPS * owners // row.models, "batch": 20},
            "columns": {"scaling": self.task.scaling},
            "split": {"validation": 0.25},
            "evaluation": {
                "every": EVERY, "post": "participants", "keep": "best", "metrics": list(self.task.metrics)
            },
        }  # fmt: skip
        drawn = trials(self.row, self.plan)[self.trial]
        return assign(shared, (*row.options, *(f"{key}={value}" for key, value in drawn.items())))


def trials(row: str, plan: PoolPlan) -> list[dict[str, Any]]:
    """Return the settings of each trial of a row: first the defaults, then distinct draws from its space, fixed by its
    name.

    >>> [len(trials(row, WHOLE)) for row in ("alone-trees", "pfed1bs", "fedthin-pool")]
    [1, 4, 4]
    """
    space = ROWS[row].space
    whole = list(product(*space.values()))
    rng = np.random.default_rng([ord(letter) for letter in row])
    drawn = [dict(zip(space, whole[i], strict=True)) for i in rng.permutation(len(whole))]
    return [{"lr": 0.1}, *drawn[: plan.trials - 1]] if space else [{}]


def tuning(plan: PoolPlan, rows: Sequence[str]) -> list[Cell]:
    """The trials of some rows."""
    every = [(task, row) for row in rows for task in plan.tasks if not (ROWS[row].classes and task.regression)]
    return [Cell(task, row, trial, 0, plan) for task, row in every for trial in range(len(trials(row, plan)))]


def chosen(found: Kept, task: PoolTask, row: str, plan: PoolPlan) -> int | None:
    """The trial with the lowest validation loss; of equals the first; None before all trials have been run."""
    cells = [Cell(task, row, trial, 0, plan) for trial in range(len(trials(row, plan)))]
    if any(cell.name not in found for cell in cells):
        return None
    return int(np.argmin([found[cell.name]["validation"]["loss"] for cell in cells]))


def finals(found: Kept, task: PoolTask, row: str, plan: PoolPlan) -> list[Cell]:
    """The runs of a row's chosen trial; none before it is known."""
    trial = chosen(found, task, row, plan)
    return [] if trial is None else [Cell(task, row, trial, seed, plan) for seed in plan.seeds]


def ready(found: Kept, plan: PoolPlan) -> list[Cell]:
    """The cells whose settings are known by now. Rows that claims are about come before all others."""
    here = [row for row in plan.rows if ROWS[row].method in METHODS.names()]
    out: list[Cell] = []
    for rows in ([row for row in here if row in DECISIVE], [row for row in here if row in OTHERS]):
        out += tuning(plan, rows)
        out += [cell for row in rows for task in plan.tasks for cell in finals(found, task, row, plan)]
        if any(cell.name not in found for cell in out):
            break
    return out
