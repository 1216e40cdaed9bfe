"""``tune``, ``choose`` and ``report`` as a person meets them."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from sparsona.methods import METHODS
from sparsona.studies.contest import TABLES

TINY = ("--rounds", 2, "--clients", 3, "--engine", "inprocess", "--partition", "iid")


def test_tune_prints_the_front_and_a_command_that_runs(sparsona: Any, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install sparsona[tune]")
    words = ("tune", "fedprox", "--target-mb", 1, "--trials", 2, *TINY, "--out", "t")
    code, out, err = sparsona(*words)
    assert code == 0, err
    assert "trial 1 of 2: lr=0.1" in err
    assert "chosen by validation data within 1 MB" in out
    last = shlex.split(out.splitlines()[-1])
    assert last[:3] == ["sparsona", "run", "fedprox"]
    assert sparsona(*last[1:], "--out", "again", "--quiet")[0] == 0
    code, again, _ = sparsona(*words, "--resume")
    assert (code, again) == (0, out), "nothing is tried again"


def test_tune_local_asks_for_no_bytes(sparsona: Any) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install sparsona[tune]")
    code, out, err = sparsona("tune", "local", "--trials", 2, *TINY, "--out", "t")
    assert code == 0, err
    assert "chosen by validation data: " in out
    scores = [float(line.rpartition(": ")[2].partition(",")[0]) for line in err.splitlines() if "trial " in line]
    assert f"data: {max(scores):.2f} with 0.000 MB" in out


def test_choose_recommends_one_in_words_with_a_report(sparsona: Any, tmp_path: Path) -> None:
    code, out, err = sparsona("choose", "fedavg", "--mb-per-round", 5, *TINY, "--out", "c", "--quiet")
    assert code == 0, err
    assert "Until round 1: 3 methods, " in out
    assert "on validation data" in out
    assert "It costs" in out
    assert out.splitlines()[-1] == "report: c/report.html"
    assert "How this came about" in (tmp_path / "c" / "report.html").read_text()
    code, out, _ = sparsona("report", "c", "--out", "deep/r.html")
    assert (code, out) == (0, "report: deep/r.html\n")


def test_choose_races_pools_on_tables(sparsona: Any, wards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS, "names", lambda: ["fedavg", "fedavg-ft", "fedthin", "local", *TABLES])
    words = ("--data", f"folder:{wards}", "--target", "ill", "--categorical", "sex", "--rounds", 1)
    code, _, err = sparsona("choose", *words, "--out", "c", "--quiet", "--engine", "inprocess")
    assert code == 0, err
    contenders = json.loads(Path("c/study.json").read_text())["contenders"]
    assert {"fedthin:pool=trees+shared", "fedavg:pool=trees+shared"} <= set(contenders)
    rows = sum((Path("c") / name / "clients.csv").exists() for name in os.listdir("c") if "pool" in name)
    assert rows == 2, "both have run to the end of the one round"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tune", "fedavg", "--target-mb", "1", "--target-score", "0.9"], "--target-mb or --target-score, not both"),
        (["tune", "fedavgg", "--target-mb", "1"], "did you mean 'fedavg'"),
        (["tune", "fedprox", "--target-mb", "1", "--knobs", "muu"], "fedprox has no knob 'muu'"),
        (["choose", "fedavgg"], "did you mean 'fedavg'"),
        (["report", "nowhere"], "no run with a measured round is in nowhere"),
    ],
)
def test_bad_input_is_one_line(sparsona: Any, words: list[str], line: str) -> None:
    code, _, err = sparsona(*words)
    assert code == 2
    assert line in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("share", [90, 1.01, -0.1])
def test_a_target_that_is_no_share_is_refused_before_a_folder_is_taken(
    sparsona: Any, tmp_path: Path, share: float
) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install sparsona[tune]")
    told = f"sparsona: --target-score {share:g} is no share of 1: give 0.9 for 90 %\n"
    assert sparsona("tune", "fedprox", "--target-score", share, *TINY, "--out", "t") == (2, "", told)
    assert list(tmp_path.iterdir()) == []


def test_an_error_may_be_a_target_above_one(sparsona: Any, wards: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install sparsona[tune]")
    own = ("--data", "folder:wards", "--target", "pulse", "--categorical", "sex,ill", "--rounds", 1, "--quiet")
    words = ("tune", "fedprox", "--target-score", 90, "--trials", 1, "--knobs", "lr", *own, "--out", "t")
    code, out, err = sparsona(*words)
    assert code == 0, err
    assert "chosen by validation data for mae 90" in out
