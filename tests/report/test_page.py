from __future__ import annotations

from pathlib import Path

import pytest

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
