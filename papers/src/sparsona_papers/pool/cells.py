"""The kept numbers of a cell: each owner's loss and score on its test rows, rounded losses of rows, and the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sparsona.errors import Diverged
from sparsona.many import Loader
from sparsona.report.measured import mean_score, measure
from sparsona.result import load
from sparsona_papers._runs import runner_of
from sparsona_papers.fedthin.cells import Reading, about, pack
from sparsona_papers.pool.plan import Cell
from sparsona_papers.pool.tasks import PoolTask

Numbers = npt.NDArray[np.float64]
LEAST = 1e-6
"""Lower bound of the probability of the truth."""
FINE = 32
"""Losses of single rows are kept in steps of 1 / 32, up to 255 / 32, for tests; means are exact."""


def read_off(cell: Cell, folder: Path, loader: Loader) -> dict[str, Any]:
    """The numbers of a finished run."""
    settings, kept, done = cell.settings(), measure(folder).within(), load(folder)
    assert kept is not None
    told = {
        **about(settings),
        "seconds": done.summary["seconds"],
        "validation": {"loss": _mean(kept.validation["pre"])},
    }
    if not cell.seed:  # a trial: its test rows are nobody's business
        return told
    prepared = loader.prepare(settings, f"the cell {cell.name}")
    setup, runner = prepared.setup, runner_of(prepared)
    order = np.concatenate([setup.federation.splits[k].test for k in setup.task.clients])
    outputs = [
        runner.test_outputs(done.models[k].model, setup.federation.splits[k].test)[0] for k in setup.task.clients
    ]
    targets, owners = cell.task.tests()
    at = np.argsort(order)
    if not np.array_equal(setup.federation.data.targets[order[at]].reshape(-1), targets):
        raise AssertionError(f"{cell.name}: the rows of the run are not those of the file")
    losses, scores = rated(torch.cat(outputs)[at], targets, cell.task)
    _, counts = np.unique(owners, return_counts=True)
    by_owner = losses[np.argsort(owners, kind="stable")]
    dense = 4 * setup.task.layout.size * len(setup.task.clients)
    return {
        **told,
        "models": {way: float(f"{getattr(kept, way) / dense:.5g}") for way in ("up", "down")},
        "loss": _by_owner(losses, owners),
        "score": _by_owner(scores, owners),
        "others": {name: _mean(found) for name, found in kept.others.items()},
        "tests": counts.tolist(),
        "rows": pack(np.clip(np.rint(by_owner * FINE), 0, 255).astype(np.uint8)),
    }


def rated(outputs: torch.Tensor, targets: npt.NDArray[Any], task: PoolTask) -> tuple[Numbers, Numbers]:
    """The loss and the score of each row: log loss and whether it is right; squared error and one less that.

    >>> from sparsona_papers.pool.tasks import TASKS
    >>> [found.tolist() for found in rated(torch.tensor([[2.0], [1.0]]), np.array([1.0, 1.0]), TASKS[0])]
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if task.regression:
        errors = (outputs.double().numpy().reshape(-1) - targets) ** 2
        return errors, 1 - errors
    given = outputs.double().softmax(1).numpy()
    right = given.argmax(axis=1) == targets
    return -np.log(np.maximum(given[np.arange(len(targets)), targets], LEAST)), right.astype(np.float64)


def diverged(cell: Cell, error: Diverged) -> dict[str, Any]:
    """The numbers of a run that diverged: it is never chosen."""
    return {**about(cell.settings()), "diverged": str(error), "validation": {"loss": 1e9}}


def _by_owner(values: Numbers, owners: npt.NDArray[np.str_]) -> list[float]:
    """The mean of each owner's rows, owners in the order of their names."""
    return [_short(values[owners == name].mean()) for name in np.unique(owners)]


def _mean(scores: Mapping[str, float]) -> float:
    return _short(mean_score(scores))


def _short(value: float) -> float:
    return float(f"{value:.6g}")


READING = Reading(read_off, diverged)
