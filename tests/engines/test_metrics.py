"""On every engine a run's scores are scikit-learn's on what its exported models predict; Ray's are in test_ray.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from flower_helpers import Federation
from metric_helpers import check_scores, settings

from sparsona.api import execute
from sparsona.prepare import prepare
from sparsona.runs.directory import RunDirectory

pytest.importorskip("lightgbm")
TASKS = ["classification", "regression", "multilabel"]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("engine", ["inprocess", "pool"])
def test_scores_of_a_simulation_are_scikit_learns(engine: str, task: str, tmp_path: Path) -> None:
    prepared = prepare({**settings(tmp_path, task), "engine": engine, "workers": 1})
    out = tmp_path / "run"
    execute(prepared, RunDirectory(out))
    federation = prepared.setup.federation
    check_scores(out, dict.fromkeys(federation.clients, out), federation, task, tmp_path / "tables")


@pytest.mark.parametrize("task", TASKS)
def test_scores_over_the_network_are_scikit_learns(task: str, tmp_path: Path) -> None:
    network = Federation(tmp_path, **settings(tmp_path, task))
    network.run()
    owners = {client: tmp_path / client / f"{client}.safetensors" for client in network.clients}
    data = network.prepared.setup.federation
    check_scores(network.home / "runs" / "run", owners, data, task, tmp_path / "tables")
