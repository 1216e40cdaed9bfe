"""Tables and tests of a study, against numbers that are computed here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import wilcoxon

import sparsona
from sparsona.errors import InputError
from sparsona.studies.study import Study, to_latex

TINY: dict[str, Any] = {"clients": 4, "rounds": 3, "engine": "inprocess", "progress": False}


@pytest.fixture(scope="module")
def study() -> Study:
    return sparsona.compare(["fedavg"], seeds=3, **TINY)


def test_p_values_are_paired_over_clients_and_seeds(study: Study) -> None:
    found = study.p_values.set_index(["method", "other"])
    assert len(found) == 3
    pairs = []
    for seed in range(3):
        mine, theirs = (study.result(label, seed).scores for label in ("local", "fedavg"))
        pairs += [mine[client]["pre"] - theirs[client]["pre"] for client in mine]
    row = found.loc["local", "fedavg"]
    assert row["pairs"] == 12
    assert row["difference"] == pytest.approx(sum(pairs) / 12)
    assert row["p"] == pytest.approx(wilcoxon([one for one in pairs if one]).pvalue)
    ordered = sorted(found["p"])
    assert min(found["p_holm"]) == pytest.approx(min(1, 3 * ordered[0]))
    assert (found["p_holm"] >= found["p"]).all()


def test_clients_that_stay_the_same_count_once(tmp_path: Path) -> None:
    for name in "abc":
        rows = [f"{k % 7 / 7},{int(k % 7 > 3)}" for k in range(60)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *rows]))
    found = sparsona.compare("fedavg", data=f"folder:{tmp_path}", target="y", seeds=2, **{**TINY, "clients": 0})
    assert set(found.p_values["pairs"]) == {3}


def test_a_latex_table_has_intervals_and_the_best_in_bold(study: Study, tmp_path: Path) -> None:
    text = to_latex({"iid": study, "skew_1": study}, tmp_path / "table.tex")
    assert (tmp_path / "table.tex").read_text() == text
    best = study.frame["pre"].idxmax()
    assert [line.split(" ")[0] for line in text.splitlines() if r"\mathbf" in line] == [best]
    assert text.count(r"\pm") == 2 * len(study.groups)
    assert r"skew\_1" in text
    assert text.count("&") / len([line for line in text.splitlines() if "&" in line]) >= 2


def test_csv_curves_and_report(study: Study, tmp_path: Path) -> None:
    study.to_csv(tmp_path / "runs.csv")
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 1 + 9
    study.curves(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "<title>Sparsona report</title>" in study.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "fedavg" in repr(study)
    assert "<table" in study._repr_html_()


def test_a_study_without_pandas(study: Study, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert set(study.frame["method"]) == set(study.groups)
    assert "fedavg" in study.to_latex()
    study.to_csv(tmp_path / "runs.csv")
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 1 + 9


def test_a_run_of_a_study_by_label_and_seed(study: Study) -> None:
    assert study.result("fedavg", 2).summary["seed"] == 2
    with pytest.raises(InputError, match="fedavgg"):
        study.result("fedavgg")
    with pytest.raises(InputError, match="seed 7"):
        study.result("fedavg", 7)
