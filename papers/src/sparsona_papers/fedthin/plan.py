"""The plan of the study: methods with equally many trials, and cells.

A cell is one run. Trials are drawn once for all from each method's own space, the first being its defaults; they train
with seed 0 for `tuning` rounds. Of each method two trials are chosen by validation samples: that with the largest area
over log bytes, and that with the highest accuracy. These are run for the five seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from sparsona.experiment import assign
from sparsona_papers.fedthin.tasks import DEVELOPMENT, TASKS, StudyTask

Choice = Literal["area", "accuracy"]
BY: tuple[Choice, ...] = ("area", "accuracy")
SHARES = (1.0, 0.2)
RATES = (0.03, 0.1, 0.3)
STEP = {"server.lr": (1.0, 2.0, 4.0), "server.momentum": (0.0, 0.5, 0.9)}
MEAN = {"personal.average": (0.0, 0.7)}
SPARSE = {"values": ("float32", "pow2")}


@dataclass(frozen=True)
class Contestant:
    """A contestant: a method with fixed options, its search space, and the number of models that a turn trains.

    Every turn takes the same number of gradient steps, so a method that trains two models has half for each.
    """

    method: str
    space: Mapping[str, Sequence[Any]]
    options: tuple[str, ...] = ()
    models: int = 1


ROWS: dict[str, Contestant] = {
    "local": Contestant("local", MEAN),
    "fedavg": Contestant("fedavg", {**STEP, **MEAN}),
    "fedadam": Contestant(
        "fedavg",
        {"server.optimizer": ("adam", "yogi"), "server.lr": (0.01, 0.03, 0.1), **MEAN},
        ("server.momentum=0.9", "server.lr=0.03", "server.optimizer=adam"),
    ),
    "fedavg-ft": Contestant("fedavg-ft", {**STEP, **MEAN}),
    "scaffold": Contestant("scaffold", {**STEP, **MEAN}),
    "ditto": Contestant("ditto", {"lam": (0.1, 0.5, 2.0), **STEP, **MEAN}, models=2),
    "apfl": Contestant("apfl", {"alpha": (0.25, 0.5, 0.75), **STEP, **MEAN}, models=2),
    "fedper": Contestant("fedper", {**STEP, **MEAN}),
    "fedala": Contestant("fedala", {"ala_lr": (0.3, 1.0, 3.0), **STEP, **MEAN}),
    "spfl": Contestant("spfl", {"head": ("own", "mixed")}, models=2),
    "fedpse": Contestant("fedpse", {"sparsity": (0.8, 0.9), **SPARSE, **STEP, **MEAN}),
    "fedstc": Contestant("fedstc", {"sparsity": (0.8, 0.9, 0.98), **STEP, **MEAN}),
    "topk": Contestant("topk", {"density": (0.1, 0.2), **SPARSE, **STEP, **MEAN}),
    "ef21": Contestant("ef21", {"density": (0.1, 0.2), **SPARSE, **STEP, **MEAN}),
    "fedthin": Contestant("fedthin", {"density": (0.1, 0.2), **STEP, **MEAN}),
    "fedthin-blend": Contestant(
        "fedthin", {"density": (0.1, 0.2), **STEP, **MEAN}, ("pool=own+alone", "personal.weights=equal"), models=2
    ),
}
OURS, BESIDE, ALONE = "fedthin", "fedthin-blend", "local"
RIVALS = tuple(name for name in ROWS if name not in (OURS, BESIDE))


@dataclass(frozen=True)
class StudyPlan:
    """The size of a study. `longest` rounds are run by the `best` rows of each task and by FedThin."""

    tasks: tuple[StudyTask, ...]
    shares: tuple[float, ...]
    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    trials: int
    tuning: int
    rounds: int
    longest: int
    best: int
    steps: int = 10
    batch: int = 20

    @property
    def settings(self) -> list[tuple[StudyTask, float]]:
        """Every task with every share of clients in a round."""
        return list(product(self.tasks, self.shares))


WHOLE = StudyPlan(TASKS, SHARES, tuple(ROWS), (1, 2, 3, 4, 5), 9, 30, 100, 300, 3)
SMALL = StudyPlan(
    DEVELOPMENT, SHARES, (ALONE, "fedavg", "fedavg-ft", "fedpse", OURS, BESIDE), (1, 2), 3, 10, 20, 30, 1
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One run: a trial of a row on a task, with a share of the clients in each round."""

    task: StudyTask
    share: float
    row: str
    trial: int
    seed: int
    rounds: int
    plan: StudyPlan

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.task.name}-{self.share:g}-{self.row}-t{self.trial}-s{self.seed}-r{self.rounds}"

    @property
    def cost(self) -> float:
        """Return rounds times the share of clients per round, by which cheap cells come first."""
        return self.rounds * self.share

    def settings(self) -> dict[str, Any]:
        """The experiment."""
        row, plan = ROWS[self.row], self.plan
        every = 1 if self.rounds <= plan.rounds else 10
        shared: dict[str, Any] = {
            "method": row.method,
            "data": f"npz:{self.task.path()}",
            "model": self.task.model,
            "partition": "groups",
            "clients": 0,
            "rounds": self.rounds,
            "seed": self.seed,
            "engine": "inprocess",
            "trainer": "fused",
            "training": {"steps": max(1, plan.steps // row.models), "batch": plan.batch},
            "schedule": {"sample": self.share},
            "columns": {"scaling": self.task.scaling},
            "split": {"validation": 0.25},
            "evaluation": {"every": every, "post": "participants"},
        }
        drawn = trials(self.row, plan)[self.trial]
        return assign(shared, (*row.options, *(f"{key}={value}" for key, value in drawn.items())))


def trials(row: str, plan: StudyPlan) -> list[dict[str, Any]]:
    """Return the settings of each trial of a row: first only the rate, then distinct draws from its space.

    >>> [len(trials(row, WHOLE)) for row in ("local", "fedthin")]
    [9, 9]
    """
    space = {"lr": RATES, **ROWS[row].space}
    whole = list(product(*space.values()))
    rng = np.random.default_rng([ord(letter) for letter in row])
    drawn = [dict(zip(space, whole[i], strict=True)) for i in rng.permutation(len(whole))]
    more = (drawn * plan.trials)[: plan.trials - 1]
    return [{"lr": 0.1}, *more]


def tuning(plan: StudyPlan) -> list[Cell]:
    """The trials of every row."""
    return [
        Cell(task, share, row, trial, 0, plan.tuning, plan)
        for task, share in plan.settings
        for row in plan.rows
        for trial in range(plan.trials)
    ]


def chosen(
    found: Mapping[str, Mapping[str, Any]], task: StudyTask, share: float, row: str, plan: StudyPlan, by: Choice
) -> int | None:
    """Return a row's trial with the best validation score, the first of equals; None before all trials are finished."""
    names = [Cell(task, share, row, trial, 0, plan.tuning, plan).name for trial in range(plan.trials)]
    if any(name not in found for name in names):
        return None
    scores = [found[name]["validation"][by] for name in names]
    return int(np.argmax(scores))


def finals(
    found: Mapping[str, Mapping[str, Any]], plan: StudyPlan, rounds: int = 0, by: Sequence[Choice] = BY
) -> list[Cell]:
    """The runs of the chosen trials that are known by now."""
    out: dict[str, Cell] = {}
    for (task, share), row, way in product(plan.settings, plan.rows, by):
        trial = chosen(found, task, share, row, plan, way)
        for seed in plan.seeds if trial is not None else ():
            cell = Cell(task, share, row, trial or 0, seed, rounds or plan.rounds, plan)
            out[cell.name] = cell
    return list(out.values())


def longest(found: Mapping[str, Mapping[str, Any]], plan: StudyPlan) -> list[Cell]:
    """Return the long runs: FedThin, `local`, and the best rows on validation samples when all are finished."""
    out = []
    for task, share in plan.settings:
        here = [c for c in finals(found, plan, by=("accuracy",)) if c.task == task and c.share == share]
        if {c.row for c in here} != set(plan.rows) or any(c.name not in found for c in here):
            continue
        means = {
            row: np.mean([found[c.name]["validation"]["accuracy"] for c in here if c.row == row]) for row in plan.rows
        }
        ranked = sorted((row for row in plan.rows if row not in (OURS, ALONE)), key=lambda row: -means[row])
        rows = {OURS, ALONE, *ranked[: plan.best]}
        out += [Cell(c.task, c.share, c.row, c.trial, c.seed, plan.longest, plan) for c in here if c.row in rows]
    return out
