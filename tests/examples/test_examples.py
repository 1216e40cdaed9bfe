"""The examples, run as a user runs them: one command each."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparsona.data import describe

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command: str | Path, folder: Path) -> str:
    given = [sys.executable, *map(str, command)]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")}
    done = subprocess.run(given, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_activities_of_people(tmp_path: Path) -> None:
    told = run(EXAMPLES / "accelerometer.py", "--out", tmp_path / "out", "--people", "6", folder=tmp_path)
    assert (tmp_path / "out" / "report.md").read_text() == told.rstrip("\n") + "\n"
    scores = {
        line.split(" | ")[0]: float(line.split(" | ")[1]) for line in re.findall(r"^\| (\S+ \| 0\.\d+.*)", told, re.M)
    }
    assert set(scores) == {"local", "fedavg", "fedavg-ft"}
    assert min(scores.values()) > 0.8
    right, windows = map(int, re.findall(r"(\d+) of (\d+) windows", told)[0])
    assert windows == 32
    assert right >= 29


def test_heart_disease_in_four_hospitals(tmp_path: Path) -> None:
    data = describe("heart-disease")
    if not data.present:
        pytest.skip("heart-disease is not on this machine: get it with `sparsona data get heart-disease`")
    told = run(EXAMPLES / "heart_disease.py", "--data", data.folder, "--out", tmp_path / "out", folder=tmp_path)
    assert "| target disease | no (295), yes (366) | classification, 2 classes |" in told
    assert re.findall(r"- (\w+): yes", told) == ["cleveland", "hungarian", "switzerland", "va"]
    means = {
        name: float(cell[:4]) for name, cell in re.findall(r"^\| (local|fedavg|fedavg-ft) \| (0\.\d+)", told, re.M)
    }
    assert min(means.values()) > 0.75
    model = tmp_path / "out" / "models" / "va.npz"
    with (tmp_path / "out" / "hospitals" / "va.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    answers = run(EXAMPLES / "predict.py", model, tmp_path / "out" / "hospitals" / "va.csv", folder=tmp_path).split()
    assert sum(a == row["disease"] for a, row in zip(answers, rows, strict=True)) > 0.7 * len(rows)


def test_heart_disease_without_data_says_how_to_get_it(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "heart_disease.py"), "--data", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "sparsona data get heart-disease, or give --data FOLDER" in done.stderr
