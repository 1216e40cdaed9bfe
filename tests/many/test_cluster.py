"""Many runs on a cluster: in the folder where nodes see it, handed over where they do not."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparsona.federation.resources import Resources
from sparsona.many import Loader, Planned, RunEnded, RunPlan, StopCondition, Watcher, advance, run_many
from sparsona.many.processes import Sequential

pytest.importorskip("ray", reason="needs Ray: pip install 'sparsona[ray]', or make test-cluster")
pytestmark = pytest.mark.network

SMALL = {"method": "fedpse", "clients": 3, "rounds": 4}


def digest(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["digest"])


def planned(folder: Path, seed: int) -> Planned:
    return Planned(folder.name, lambda: RunPlan(folder, {**SMALL, "seed": seed}, "a test"))


@pytest.mark.parametrize("shared", [True, False])
def test_the_same_digests_as_here_and_an_error_comes_back(nodes: Any, tmp_path: Path, shared: bool) -> None:
    from sparsona.many.cluster import OnCluster

    run_many([planned(tmp_path / f"here{seed}", seed) for seed in range(2)], Sequential(), Watcher())
    begun = RunPlan(tmp_path / "far0", {**SMALL, "seed": 0}, "a test", StopCondition(rounds=2))
    advance(begun, Loader())
    wrong = Planned("wrong", lambda: RunPlan(tmp_path / "wrong", {**SMALL, "method": "nothing"}, "a test"))
    rounds: list[tuple[str, int]] = []
    ended: list[RunEnded] = []
    with closing(OnCluster(Resources(workers=2), tmp_path)) as place:
        if not shared:
            place._mark.unlink()
        watcher = Watcher(round=lambda name, report: rounds.append((name, report.round)), ended=ended.append)
        run_many([*(planned(tmp_path / f"far{seed}", seed) for seed in range(2)), wrong], place, watcher)
    assert [digest(tmp_path / f"far{s}") for s in range(2)] == [digest(tmp_path / f"here{s}") for s in range(2)]
    assert not [name for name in tmp_path.iterdir() if name.name.startswith(".ray")]
    assert {number for name, number in rounds if name == "far1"} <= {1, 2, 3, 4}
    assert 1 not in {number for name, number in rounds if name == "far0"}, "what was done is not done again"
    errors = {one.name: str(one.error) for one in ended if one.error is not None}
    assert list(errors) == ["wrong"]
    assert "unknown method 'nothing'" in errors["wrong"]
