"""``compare``: interleaved, resumable, and the same table whatever happened on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TINY = ("--rounds", 3, "--clients", 3, "--engine", "inprocess")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "sparsona", *map(str, words)]


def table(out: str) -> list[str]:
    """What compare prints, without real seconds, which no two runs share."""
    costs = out[out.index(" GFLOP") :]
    rows = [re.sub(r"\s+[\d.,]+$", "", line) for line in costs.splitlines()[1:]]
    return [*out[: out.index(" GFLOP")].splitlines(), *rows]


def test_a_comparison_ends_with_scores_costs_and_a_report(sparsona: Any, tmp_path: Path) -> None:
    code, out, err = sparsona("compare", "fedavg", "fedprox:mu=0.5", *TINY, "--seeds", 2, "--out", "c")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "digits, 3 clients, dirichlet-classes:0.3, 3 rounds, seeds 0 to 1"
    assert max(len(line) for line in lines if not line.startswith("  ")) <= 80, "but for the command to run next"
    for name in ("local", "fedavg-ft", "fedavg", "fedprox:mu=0.5"):
        assert sum(line.startswith(f" {name} ") for line in lines) == 2, name
    assert re.search(r"local +\S+±\S+ +\S+±\S+ +\+0\.00±0\.00 .* 0 %", out), "local is not worse off than alone"
    assert "95 % interval over seeds" in out
    assert lines[-2:] == ["results: c", "report: c/report.html"]
    assert sorted(path.name for path in (tmp_path / "c").iterdir() if path.is_dir()) == [
        f"{name}-seed{seed}" for name in ("fedavg-ft", "fedavg", "fedprox-mu-0.5", "local") for seed in (0, 1)
    ]
    started = re.findall(r"^(\S+), seed (\d)", err, re.MULTILINE)
    assert [seed for _, seed in started] == ["0"] * 4 + ["1"] * 4, "seed by seed"
    summary = json.loads((tmp_path / "c" / "fedprox-mu-0.5-seed1" / "summary.json").read_text())
    assert (summary["options"]["mu"], summary["options"]["merge"], summary["seed"]) == (0.5, "mean", 1)


def test_a_pool_is_compared_on_an_owners_tables_and_says_what_each_expert_adds(
    sparsona: Any, wards: Path, tmp_path: Path
) -> None:
    pool, data = "fedthin:pool=trees+shared", ("--data", f"folder:{wards}", "--target", "ill", "--categorical", "sex")
    words = ("compare", "fedthin", pool, "alone-trees", *data, "--rounds", 2, "--seeds", 1, "--out", "c", "--quiet")
    code, out, err = sparsona(*words)
    assert code == 0, err
    assert len(re.findall(r"^(east|north|west): alone with trees .* share of the shared model", out, re.MULTILINE)) == 3
    assert "alone with trees" in (tmp_path / "c" / "report.html").read_text()
    code, out, _ = sparsona("export", "c/fedthin-pool-trees-shared-seed0", "--client", "east", "--to", "east.npz")
    assert (code, (tmp_path / "east.npz").exists()) == (0, True), out
    code, again, err = sparsona("compare", *words[1:], "--resume")
    assert code == 0, err
    assert "alone with trees" in again


def test_it_grows_by_methods_and_seeds_and_runs_nothing_twice(sparsona: Any, tmp_path: Path) -> None:
    sparsona("compare", "local", *TINY, "--seeds", 1, "--out", "c", "--quiet")
    before = (tmp_path / "c" / "local-seed0" / "records.jsonl").stat().st_mtime_ns
    code, _, err = sparsona("compare", "local", *TINY, "--seeds", 1, "--out", "c")
    assert code == 2
    assert "already holds a study: add --resume" in err
    code, out, err = sparsona("compare", "fedavg", "--seeds", 2, "--out", "c", "--resume", "--quiet")
    assert code == 0, err
    assert "3 rounds, seeds 0 to 1" in out, "what they share is in the folder"
    assert (tmp_path / "c" / "fedavg-seed1" / "summary.json").exists()
    assert (tmp_path / "c" / "local-seed0" / "records.jsonl").stat().st_mtime_ns == before
    code, out, err = sparsona("compare", "--rounds", 4, "--out", "c", "--resume", "--quiet")
    assert code == 0, err
    assert "4 rounds, seeds 0 to 1" in out, "more rounds are added to the runs that are there"
    code, _, err = sparsona("compare", "--clients", 4, "--rounds", 5, "--out", "c", "--resume", "--quiet")
    assert code == 2
    assert "clients" in err


def test_a_budget_ends_a_run_and_counts_what_was_scored_within_it(sparsona: Any, tmp_path: Path) -> None:
    words = ("compare", "fedavg", *TINY, "--seeds", 1, "--budget-mb", 0.1, "--out", "c", "--quiet")
    code, out, err = sparsona(*words)
    assert code == 0, err
    folder = tmp_path / "c" / "fedavg-seed0"
    rounds = {json.loads(line)["round"] for line in (folder / "records.jsonl").read_text().splitlines()}
    assert rounds == {1, 2}, "the second round goes beyond the budget, and is the last"
    assert not (folder / "summary.json").exists()
    row = next(line.split() for line in out[out.index("GFLOP") :].splitlines() if line.split()[:1] == ["fedavg"])
    assert float(row[1]) + float(row[3]) <= 100, "bytes at the last evaluation within the budget"
    assert sparsona("compare", "--resume", "--out", "c", "--quiet")[1].splitlines()[:20] == out.splitlines()[:20]


def test_a_budget_for_finished_runs_cuts_all_that_is_told_of_them(sparsona: Any) -> None:
    assert sparsona("compare", "fedavg", *TINY, "--seeds", 1, "--out", "c", "--quiet")[0] == 0
    code, out, err = sparsona("compare", "--resume", "--out", "c", "--budget-mb", 0.1)
    assert code == 0, err
    scores, costs = out[: out.index("GFLOP")], out[out.index("GFLOP") :]
    told = dict(re.findall(r"^(\S+), seed 0: (\S+)$", err, re.MULTILINE))
    for name in ("local", "fedavg"):
        row = next(line.split() for line in scores.splitlines() if line.split()[:1] == [name])
        assert told[name] == row[1], "the line of a run has the score of the table"
    rows = [line.split() for line in costs.splitlines()]
    seconds = {row[0]: row[-1] for row in rows if row[:1] in (["local"], ["fedavg"])}
    assert seconds["fedavg"] == "-", "nobody has taken the time of a part of a run"
    assert float(seconds["local"]) >= 0, "a number: all of it is within the budget"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["fedavgg"], "unknown method 'fedavgg'; did you mean 'fedavg'?"),
        ([], "give methods"),
        (["fedavg", "--set", "mu=1", "--out", "x"], "what is one method's own is written local:KEY=VALUE"),
        (["--resume", "--out", "nowhere"], "nowhere is not the folder of a study"),
    ],
)
def test_bad_input_is_one_line(sparsona: Any, words: list[str], line: str) -> None:
    code, _, err = sparsona("compare", *words)
    assert code == 2
    assert line in err
    assert err.count("\n") == 1


def test_who_diverges_is_shown_without_a_score_and_the_others_go_on(sparsona: Any) -> None:
    code, out, err = sparsona("compare", "fedavg:lr=1e30", *TINY, "--seeds", 1, "--out", "c", "--quiet")
    assert code == 0
    assert "fedavg:lr=1e30 left the comparison: " in err
    assert "fedavg-ft" in out
    (row, _) = re.findall(r"^ fedavg:lr=1e30.*$", out, re.MULTILINE)
    assert "diverged" in out
    assert not re.search(r"\d\d\.\d", row)


def test_killed_twice_it_ends_with_the_same_table(tmp_path: Path) -> None:
    words = ("compare", "fedavg", "fedspa", *TINY, "--rounds", 6, "--seeds", 2)
    kill_twice(words, tmp_path)


@pytest.mark.slow
def test_eight_methods_and_five_seeds_killed_twice_end_with_the_same_table(tmp_path: Path) -> None:
    kill_twice(("compare", "fedavg", "fedprox", "fedpse", "pfednet", "spfl", "fedspa", "--seeds", 5), tmp_path)


def kill_twice(words: tuple[object, ...], folder: Path) -> None:
    environment = {**os.environ, "COLUMNS": "80"}
    kept: dict[str, Any] = {"env": environment, "cwd": folder, "capture_output": True, "text": True, "check": True}
    whole = subprocess.run(command(*words, "--out", "whole"), **kept).stdout
    broken = folder / "broken"
    for number in (1, 2):
        more = ("--resume",) if number > 1 else ()
        process = subprocess.Popen(
            command(*words, "--out", "broken", *more), env=environment, cwd=folder, stderr=subprocess.DEVNULL
        )
        wanted = _lines(broken) + 12 * number
        while _lines(broken) < wanted and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it must be killed in its middle"
    again = subprocess.run(command("compare", "--resume", "--out", "broken"), **kept).stdout
    assert table(again.replace("broken", "whole")) == table(whole)


def _lines(folder: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("*/records.jsonl"))


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    words = command("compare", "fedavg", "--rounds", 3000, "--clients", 3, "--engine", "inprocess", "--out", "my runs")
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while not _lines(tmp_path / "my runs") and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted: continue with sparsona compare --resume --out 'my runs'"
    assert "Traceback" not in err


def test_it_does_not_go_on_with_other_data(sparsona: Any, wards: Path) -> None:
    own = ("--data", "folder:wards", "--target", "ill", "--categorical", "sex", "--rounds", 1, "--quiet")
    assert sparsona("compare", "fedavg", *own, "--seeds", 1, "--out", "c")[0] == 0
    file = wards / "north.csv"
    file.write_text(file.read_text().replace("f,", "m,", 1))
    code, _, err = sparsona("compare", "fedprox", "--resume", "--out", "c", "--quiet")
    assert code == 2
    told = "was begun with other data (client north has changed): restore the file, or choose another --out\n"
    assert err.startswith("sparsona: c/")
    assert err.endswith(told)
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["compare", "choose", "sweep", "tune"])
@pytest.mark.parametrize(
    "wrong", [("--data", "nowhere"), ("--partition", "classes:99"), ("--set", "training.lr=-1"), ("--rounds", "0")]
)
def test_what_is_refused_takes_no_folder(sparsona: Any, tmp_path: Path, command: str, wrong: tuple[str, str]) -> None:
    if command == "tune":
        pytest.importorskip("optuna", reason="optuna is not installed: pip install sparsona[tune]")
    own = {"sweep": ("--over", "seed=0:2"), "tune": ("--target-mb", 1)}
    code, _, err = sparsona(command, "fedprox", *own.get(command, ()), *wrong, "--quiet")
    assert (code, err.count("\n")) == (2, 1), err
    assert sparsona(command, "fedprox", *own.get(command, ()), *wrong, "--quiet", "--out", "s")[2] == err
    assert list(tmp_path.iterdir()) == [], "neither runs/compare-digits-0 nor --out"


def test_what_is_wrongly_added_leaves_a_study_as_it_was(sparsona: Any, tmp_path: Path) -> None:
    shared = ("--clients", 2, "--rounds", 1, "--seeds", 1, "--quiet", "--out", "c")
    code, _, err = sparsona("compare", "fedprox:mu=-1", *shared)
    assert code == 2
    assert "mu" in err
    assert not (tmp_path / "c").exists()
    assert sparsona("compare", "fedprox", *shared)[0] == 0, "the corrected command needs no other folder"
    before = (tmp_path / "c" / "study.json").read_bytes()
    assert sparsona("compare", "fedavg:mu=1", "--resume", "--out", "c", "--quiet")[0] == 2
    assert (tmp_path / "c" / "study.json").read_bytes() == before
    assert sparsona("compare", "--resume", "--out", "c", "--quiet")[0] == 0
    assert "density" in sparsona("choose", "fedspa:density=7", "--quiet", "--out", "race")[2]
    assert not (tmp_path / "race").exists()
