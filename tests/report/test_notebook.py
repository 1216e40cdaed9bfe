"""A run as a notebook shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparsona
from sparsona.errors import RunError


def test_a_result_is_a_line_and_a_small_page(tmp_path: Path) -> None:
    result = sparsona.run("fedavg", clients=2, rounds=3, partition="iid", engine="inprocess", out=tmp_path / "run")
    shown = f"{100 * result.summary['accuracy']['pre']['mean']:.2f} %"
    assert shown in repr(result)
    assert len(repr(result)) < 200
    page = result._repr_html_()
    assert shown in page
    assert page.count("<svg") == 1
    assert len(page.split('points="')[1].split('"')[0].split()) == 3, "one point per evaluation"
    assert result.report().name == "report.html"
    assert r"\toprule" in result.to_latex(tmp_path / "table.tex")


def test_a_run_without_files_has_no_report() -> None:
    result = sparsona.run("local", clients=2, rounds=1, partition="iid", engine="inprocess")
    assert "<svg" not in result._repr_html_(), "one evaluation is no curve"
    with pytest.raises(RunError, match="out="):
        result.report()
