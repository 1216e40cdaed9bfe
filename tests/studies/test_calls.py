"""Studies from Python: the same runs as from the command line, and choices on validation rows only."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sparsona
from sparsona.cli import app
from sparsona.errors import InputError, RunError
from sparsona.studies.study import Study

TINY: dict[str, Any] = {"clients": 3, "rounds": 2, "engine": "inprocess", "progress": False}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return sparsona.compare(["fedavg"], seeds=2, lr=0.3, out=tmp_path_factory.mktemp("study") / "runs", **TINY)


def digests(folder: Path) -> dict[str, str]:
    return {
        run.name: sparsona.load(run).summary["digest"] for run in folder.iterdir() if (run / "summary.json").exists()
    }


def test_a_comparison_has_the_runs_of_the_command(study: Study, tmp_path: Path) -> None:
    options = ["--clients", "3", "--rounds", "2", "--engine", "inprocess", "--set", "lr=0.3", "--quiet"]
    done = CliRunner().invoke(app, ["compare", "fedavg", "--seeds", "2", "--out", str(tmp_path / "cli"), *options])
    assert done.exit_code == 0, done.output
    assert digests(study.folder) == digests(tmp_path / "cli")
    assert (study.folder / "report.html").exists()


def test_a_comparison_goes_on_where_it_was_killed(study: Study) -> None:
    with pytest.raises(RunError, match="resume"):
        sparsona.compare(["fedavg"], seeds=2, lr=0.3, out=study.folder, **TINY)
    before = digests(study.folder)
    again = sparsona.compare(["fedavg", "fedprox"], seeds=2, lr=0.3, out=study.folder, resume=True, **TINY)
    assert set(again.groups) == {*study.groups, "fedprox"}
    assert before.items() <= digests(study.folder).items()


def test_without_a_folder_the_runs_live_as_long_as_the_study() -> None:
    found = sparsona.compare("fedavg", seeds=1, **TINY)
    folder = found.folder
    assert (folder / "study.json").exists()
    del found
    assert not folder.exists()


def test_objects_cannot_be_sent_to_other_processes() -> None:
    with pytest.raises(InputError, match="npz:FILE"):
        sparsona.compare("fedavg", data={"a": (np.ones((9, 2)), np.ones(9))}, **TINY)


def test_a_choice_is_made_on_validation_rows_and_tested_once(tmp_path: Path) -> None:
    over: dict[str, Any] = {"method": ["fedavg", "fedprox"], "lr": [0.01, 0.3], "seed": range(2)}
    found = sparsona.sweep(over=over, choose_by="validation", out=tmp_path / "sweep", **TINY)
    assert list(found.groups) == ["fedavg", "fedprox"], "one setting of each"
    table = {(row["method"], row["lr"]): row for _, row in found.candidates.iterrows()}
    for method in ("fedavg", "fedprox"):
        best = max(("0.01", "0.3"), key=lambda lr: table[method, lr]["validation"])
        assert [lr for lr in ("0.01", "0.3") if table[method, lr]["chosen"]] == [best]
        assert {float(run.settings["training"]["lr"]) for run in found.groups[method]} == {float(best)}
    assert len(list(found.runs["seed"])) == 4


def test_the_command_marks_the_choice_and_has_validation_scores(tmp_path: Path) -> None:
    options = ["--clients", "3", "--rounds", "2", "--engine", "inprocess", "--quiet", "--out", str(tmp_path / "s")]
    asked = ["sweep", "fedavg", "--over", "lr=0.01,0.3", "--choose-by"]
    done = CliRunner().invoke(app, [*asked, "validation", *options])
    assert done.exit_code == 0, done.output
    with (tmp_path / "s" / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    best = max(rows, key=lambda row: float(row["validation"]))
    assert [row["chosen"] for row in rows] == [str(row is best).lower() for row in rows]
    summary = sparsona.load(tmp_path / "s" / best["run"]).summary
    assert summary["validation"]["pre"] == pytest.approx(float(best["validation"]))
    assert done.output.count("*") >= 1
    refused = CliRunner().invoke(app, [*asked, "test", *options, "--resume"])
    assert isinstance(refused.exception, InputError)


def test_a_search_tells_the_test_score_of_its_choice_only(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install sparsona[tune]")
    found = sparsona.tune("fedprox", target_mb=5, trials=3, knobs=["lr"], out=tmp_path / "t", **TINY)
    frame = found.frame
    assert frame["chosen"].sum() == 1
    assert frame["test"].notna().equals(frame["chosen"])
    assert found.chosen.validation == frame["validation"].max()
    assert found.command.startswith("sparsona run fedprox")


def test_a_race_has_a_winner() -> None:
    found = sparsona.choose(["fedavg", "fedprox"], **TINY)
    last = found.frame[found.frame["rounds"] == 2]
    assert found.winner == last.iloc[0]["method"]
    assert found.winner in found.study.groups
