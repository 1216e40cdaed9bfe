"""``sweep``: one table, whatever happened on the way."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TINY = ("--rounds", 2, "--clients", 3, "--engine", "inprocess")


def test_a_sweep_ends_with_one_table_and_one_file(sparsona: Any, tmp_path: Path) -> None:
    words = ("sweep", "fedavg", *TINY, "--over", "method=fedavg,local", "--over", "seed=0:2", "--out", "s")
    code, out, err = sparsona(*words)
    assert code == 0, err
    rows = [line.split() for line in out.splitlines() if line.split()[:1] in (["fedavg"], ["local"])]
    assert [row[:2] for row in rows] == [["fedavg", "2"], ["local", "2"]]
    assert all("±" in row[2] for row in rows), "seeds are averaged"
    assert max(map(len, out.splitlines())) <= 80
    assert err.splitlines()[-1] == "[4/4] local-seed1"
    with (tmp_path / "s" / "sweep.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["run"], line["method"], line["seed"]) for line in lines] == [
        ("fedavg-seed0", "fedavg", "0"), ("fedavg-seed1", "fedavg", "1"),
        ("local-seed0", "local", "0"), ("local-seed1", "local", "1"),
    ]  # fmt: skip
    assert all(len(line["digest"]) == 64 and 0 < float(line["pre"]) <= 1 for line in lines)
    code, again, err = sparsona("sweep", "--resume", "--out", "s")
    assert (code, again) == (0, out), "nothing is run again"
    assert err == ""


def test_an_experiment_file_is_swept(sparsona: Any, tmp_path: Path) -> None:
    sparsona("run", "fedprox", *TINY, "--out", "one", "--quiet", "--set", "mu=0.5")
    words = ("sweep", "one/experiment.toml", "--over", "mu=0.1,1", "--out", "s", "--quiet")
    code, out, err = sparsona(*words)
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["0.1", "1"]
    assert (tmp_path / "s" / "mu0.1" / "summary.json").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "sweep what?"),
        (["fedavg"], "sweep over what?"),
        (["fedavgg", "--over", "seed=0:2"], "did you mean 'fedavg'?"),
        (["fedavg", "--over", "sed=0:2"], "nothing is called 'sed'; did you mean 'seed'?"),
        (["fedavg", "--over", "seed=0:2,x"], "seed"),
        (["--resume"], "give its folder with --out"),
        (["--resume", "--out", "nowhere"], "nowhere is not the folder of a sweep"),
        (["absent.toml", "--over", "seed=0:2"], "cannot read absent.toml"),
    ],
)
def test_bad_input_is_one_line(sparsona: Any, words: list[str], line: str) -> None:
    code, _, err = sparsona("sweep", *words)
    assert code == 2
    assert line in err
    assert err.count("\n") == 1


def test_a_run_that_fails_is_named_and_the_others_are_in_the_table(sparsona: Any) -> None:
    code, out, err = sparsona("sweep", "fedavg", *TINY, "--over", "lr=0.1,1e30", "--out", "s", "--quiet")
    assert code == 2
    assert "lr1e30 failed: " in err
    assert out.splitlines()[1].split()[0] == "0.1"


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    """Long enough to stand side by side: the processes end with the command."""
    words = ["sweep", "fedavg", "--rounds", "4000", "--clients", "3", "--over", "seed=0:4", "--out", "my runs"]
    command = [sys.executable, "-m", "sparsona"]
    process = subprocess.Popen([*command, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "my runs"
    while len(list(folder.glob("*/records.jsonl"))) < 2 and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted: continue with sparsona sweep --resume --out 'my runs'"
    assert "Traceback" not in err
    done = sum(file.read_bytes().count(b"\n") for file in folder.glob("*/records.jsonl"))
    time.sleep(0.5)
    assert sum(file.read_bytes().count(b"\n") for file in folder.glob("*/records.jsonl")) == done, "nobody works on"


def test_a_sweep_does_not_go_on_with_other_data(sparsona: Any, wards: Path) -> None:
    own = ("--data", "folder:wards", "--target", "ill", "--categorical", "sex", "--rounds", 1, "--quiet")
    assert sparsona("sweep", "fedavg", *own, "--over", "seed=0,1", "--out", "s")[0] == 0
    file = wards / "north.csv"
    file.write_text(file.read_text().replace("f,", "m,", 1))
    code, _, err = sparsona("sweep", "--resume", "--out", "s", "--over", "seed=2", "--quiet")
    assert code == 2
    assert "s/seed0 was begun with other data (client north has changed)" in err
