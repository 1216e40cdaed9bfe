"""The examples, run as a user runs them: one command each."""

from __future__ import annotations

import ast
import csv
import importlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import sparsona
from sparsona.data import describe
from sparsona.export.predict import predict_file
from sparsona.export.run import export_model

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


def test_numpy_alone_tells_of_a_category_that_was_never_seen(tmp_path: Path) -> None:
    """As sparsona predict does, also of files that are written otherwise."""
    (tmp_path / "wards").mkdir()
    lines = [f"{k % 7},{k % 5};{k % 3};{'fm'[k % 2]};{'ill' if k % 7 > 3 else 'well'}" for k in range(60)]
    (tmp_path / "wards" / "east.csv").write_text("\n".join(["dose;cp;sex;label", *lines]) + "\n")
    words: dict[str, Any] = {"separator": ";", "decimal": ",", "missing": "-9", "categorical": "cp,sex"}
    sparsona.run("local", data=f"folder:{tmp_path / 'wards'}", rounds=1, out=tmp_path / "run", **words)
    export_model(tmp_path / "run", "east", tmp_path / "east.npz")
    rows = tmp_path / "new.csv"
    rows.write_text("dose;cp;sex\n0,5;x;f\n-9,0;2.0;q\n6,5;-9;m\n")
    command = [sys.executable, str(EXAMPLES / "predict.py"), "east.npz", "new.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    told = "is in no training row; it is predicted as if it were missing"
    assert done.stderr == f"new.csv, line 2, column 'cp': 'x' {told}\nnew.csv, line 3, column 'sex': 'q' {told}\n"
    out = io.StringIO()
    predict_file(tmp_path / "east.npz", rows, out)
    assert done.stdout.split() == [line.split(",")[0] for line in out.getvalue().splitlines()[1:]]


def test_heart_disease_without_data_says_how_to_get_it(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "heart_disease.py"), "--data", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "sparsona data get heart-disease, or give --data FOLDER" in done.stderr


def test_a_papers_table_survives_a_kill(tmp_path: Path) -> None:
    """Killed after its first run, and made again: as if it had not been killed."""
    table = EXAMPLES / "paper_table.py"
    assert len(table.read_text().splitlines()) <= 60
    command = [sys.executable, str(table), "--tiny", "--out", str(tmp_path / "killed")]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not any(tmp_path.glob("killed/*/*/summary.json")):
            time.sleep(0.05)
        process.kill()
    assert not (tmp_path / "killed" / "table.tex").exists()
    main = runpy.run_path(str(table))["main"]
    resumed, straight = main(tmp_path / "killed", tiny=True), main(tmp_path / "straight", tiny=True)
    assert resumed == straight == (tmp_path / "straight" / "table.tex").read_text()
    assert straight.count(r"\mathbf") == 2
    for name in ("skewed", "two-classes"):
        folder = tmp_path / "straight" / name
        assert (folder / "curves.png").exists()
        assert len((folder / "p-values.csv").read_text().splitlines()) == 1 + 6
        assert (folder / "rates.csv").read_text().count("True") == 4


def shown_by(notebook: str) -> list[Any]:
    """Execute every cell, as a notebook does; return the values that it shows, the last expressions of the cells."""
    names: dict[str, Any] = {}
    shown = []
    for cell in json.loads((EXAMPLES / notebook).read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), names)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    return [value for value in shown if value is not None]


def test_the_notebook_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cell shows must have an HTML form."""
    monkeypatch.chdir(tmp_path)
    shown = shown_by("paper_table.ipynb")
    assert all(value._repr_html_() for value in shown)
    assert len(shown) == 4
    assert (tmp_path / "runs" / "notebook" / "table.tex").exists()


def test_the_notebook_from_csv_files_to_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    frame, answers = shown_by("own_csv.ipynb")
    assert {"alone-trees", "alone-linear", "local", "fedavg"} <= set(frame.index)
    assert answers.tolist() == ["no", "yes"]
    which, gain, report = capsys.readouterr().out.splitlines()[-3:]
    assert which.endswith(".")
    assert "joining" in gain.lower()
    assert (tmp_path / report).read_text(encoding="utf-8").startswith("<!doctype html>")


def _adapters(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module: Any = importlib.import_module("adapters")
    return module


def test_a_transformer_is_adapted_by_ten_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = _adapters(monkeypatch)
    monkeypatch.setattr(example, "METHODS", ("fedpse",))
    monkeypatch.setattr(example, "ROUNDS", 1)
    told = example.report(tmp_path, made=True)
    assert (tmp_path / "table.md").read_text() == told + "\n"
    cells = [line.strip("| ").split(" | ") for line in told.splitlines()[2:]]
    whole, head, two, eight = (int(cell[3].replace(",", "")) for cell in cells)
    assert head < two < eight < whole / 5
    assert min(float(cell[4]) for cell in cells) > 0.7


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    example = _adapters(monkeypatch)
    monkeypatch.setattr(example, "CLIENTS", 2)
    shown_by("adapters.ipynb")
    assert "head only 66" in capsys.readouterr().out
