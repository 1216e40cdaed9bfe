"""Curves: what had been spent at each measurement, and that they are drawn."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sparsona
from sparsona.cli import app
from sparsona.errors import RunError
from sparsona.report.curves import curve, marks


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, sparsona.Result]:
    folder = tmp_path_factory.mktemp("runs") / "one"
    return folder, sparsona.run("fedavg", rounds=4, clients=3, evaluation={"every": 2}, out=folder)


def test_marks_add_up_to_the_summary(run: tuple[Path, sparsona.Result]) -> None:
    folder, result = run
    found = marks(folder, "pre")
    assert [mark.rounds for mark in found] == [2, 4]
    sent, summary = result.summary["bytes"], result.summary
    assert found[-1].bytes == pytest.approx((sent["up"] + sent["down"]) / 1e6)
    assert found[-1].flops == pytest.approx(summary["flops"] / 1e9)
    assert found[-1].seconds == pytest.approx(summary["simulated_seconds"], abs=1e-3)
    assert found[-1].score == pytest.approx(summary["accuracy"]["pre"]["mean"])
    assert 0 < found[0].bytes < found[1].bytes
    assert curve(folder, "pre", "seconds")[0] == [mark.seconds for mark in found]


def test_a_point_that_was_not_measured_has_no_marks(run: tuple[Path, sparsona.Result]) -> None:
    assert marks(run[0], "ft") == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--point", "ft"], "was not measured at ft"),
        (["--point", "now"], "is no point of evaluation"),
        (["--out", "curves.parquet"], "cannot be drawn"),
    ],
)
def test_what_cannot_be_drawn_is_said(run: tuple[Path, sparsona.Result], more: list[str], says: str) -> None:
    outcome = CliRunner().invoke(app, ["draw", str(run[0]), *more])
    assert outcome.exit_code != 0
    assert says in str(outcome.exception)


def test_runs_are_drawn(run: tuple[Path, sparsona.Result], tmp_path: Path) -> None:
    file = tmp_path / "curves.png"
    assert CliRunner().invoke(app, ["draw", str(run[0].parent), "--out", str(file)]).exit_code == 0
    assert file.read_bytes().startswith(b"\x89PNG")


def test_damaged_records_are_named(run: tuple[Path, sparsona.Result], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(run[0], broken)
    (broken / "records.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match=r"records\.jsonl is damaged"):
        marks(broken, "pre")
