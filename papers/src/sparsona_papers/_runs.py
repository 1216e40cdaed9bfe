"""Readers of run directories: summaries, the server's state, and scores of other models."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparsona.message import Vector
from sparsona.prepare import Prepared
from sparsona.runs.checkpoint import Checkpointer
from sparsona.runs.directory import RunDirectory
from sparsona.runs.scores import summarise
from sparsona.training.runner import ModelRunner
from sparsona_papers._differences import Summary
from sparsona_papers._paper import Case


def last_validation(folder: RunDirectory) -> dict[str, float]:
    """The clients' mean score on validation samples after the last round, by point; clients without any left out."""
    lines = folder.lines()
    last = [line.validation for line in lines if line.round == lines[-1].round]
    found: dict[str, float] = {}
    for point in ("pre", "post"):
        scores = [own[point] for own in last if point in own and own[point] == own[point]]
        if scores:
            found[point] = sum(scores) / len(scores)
    return found


def finished(cases: Iterable[Case], out: Path) -> dict[str, Summary]:
    """The summaries of the cases whose run directories are there and done, by name: for drawings."""
    folders = {case.name: RunDirectory(out / case.name) for case in cases}
    return {name: folder.summary() for name, folder in folders.items() if folder.summary_file.exists()}


def server_state(folder: Path, kind: type) -> Any:
    """Return the server's final state; `kind` is its class."""
    return Checkpointer(RunDirectory(folder).checkpoint).server(kind)


def server_scores(folder: RunDirectory, prepared: Prepared, kind: type) -> dict[str, float]:
    """Return the score of the server's vector on the clients' test samples: their mean, and weighted by their sizes."""
    found = scores_of(server_state(folder.path, kind).weights, runner_of(prepared), prepared)
    named = {"server": found["mean"], "server_weighted": found["weighted"]}
    return {name: value for name, value in named.items() if value is not None}


def runner_of(prepared: Prepared) -> ModelRunner:
    """Return a runner that trains and tests models outside of the run."""
    setup = prepared.setup
    return ModelRunner(copy.deepcopy(setup.module), setup.federation.data, setup.objective, setup.task.chance)


def scores_of(weights: Vector, runner: ModelRunner, prepared: Prepared) -> Mapping[str, float | None]:
    """Return the scores of one model on the clients' test samples."""
    setup = prepared.setup
    tests = {client: setup.federation.splits[client].test for client in setup.task.clients}
    return summarise(
        {client: runner.score(weights, test) for client, test in tests.items()},
        {client: len(test) for client, test in tests.items()},
    )
