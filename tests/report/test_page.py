from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sparsona
from sparsona.report.html import page_data
from sparsona.report.measured import find_runs, measure
from sparsona.runs.budget import Budget


def test_a_page_has_the_score_over_epsilon_and_what_each_client_has_spent(private: Path) -> None:
    data, _ = page_data([measure(run) for run in find_runs([private])], Budget())
    found = {method["label"]: method["privacy"] for method in data["methods"]}
    budgets = sorted((one for one in found.values() if one is not None), key=lambda one: one["largest"])
    assert len(found) == 3
    assert [one["method"] for one in budgets] == ["fedavg", "fedavg"]
    for one, epsilon in zip(budgets, (1, 8), strict=True):
        assert one["largest"] == pytest.approx(epsilon, rel=0.05)
        assert set(one["clients"]) == {"c0", "c1"}
        assert max(one["clients"].values()) == one["largest"] <= epsilon
        assert one["delta"] == 1e-5


def test_a_doubt_is_told_once_and_the_federated_method_is_the_one_that_validation_prefers(tmp_path: Path) -> None:
    """Each seed has other copies among its test rows; a client's own best method on test rows would flatter joining."""
    rng = np.random.default_rng(0)
    (tmp_path / "wards").mkdir()
    for ward in ("east", "west"):
        rows = [f"{a:.3f},{b:.3f},{'yn'[int(a + b > 0)]}" for a, b in rng.normal(size=(40, 2))]
        (tmp_path / "wards" / f"{ward}.csv").write_text("\n".join(["a,b,ill", *rows, *rows[:15]]) + "\n")
    for method, seed in (("naive", 0), ("naive", 1), ("fedavg", 0), ("fedprox", 0)):
        out = tmp_path / f"{method}-{seed}"
        sparsona.run(method, data=f"folder:{tmp_path / 'wards'}", target="ill", rounds=1, lr=0.1, seed=seed, out=out)
    runs = [measure(run) for run in find_runs([tmp_path])]
    counts = {line for run in runs for line in run.about.doubts if "copies" in line}
    data, _ = page_data(runs, Budget())
    assert len(counts) > 1
    assert len([line for line in data["warnings"] if "copies" in line]) == 1
    scores = {one["label"]: one["validation"]["mean"] for one in data["methods"] if one["label"] != "naive"}
    assert scores[data["joined"]] == max(scores.values())
