"""Experts in files: every format predicts as the run did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import sparsona
from sparsona.data.dataset import Array
from sparsona.errors import InputError
from sparsona.export.run import export_model

SCRIPT = Path(__file__).parents[2] / "examples" / "predict.py"


def wards(task: str) -> dict[str, pandas.DataFrame]:
    """Two wards with a missing value here and there, and targets that trees can learn."""
    rng, found = np.random.default_rng(4), {}
    for ward in ("east", "west"):
        age, dose = rng.uniform(20, 90, 140), rng.normal(0, 1, 140)
        frame = pandas.DataFrame({"age": age, "dose": dose, "sex": rng.choice(["f", "m"], 140)})
        score = np.where(age > 50, dose, -dose)
        if task == "classification":
            frame["y"] = np.select([score > 0.7, score > -0.7], ["ill", "unsure"], "well")
        elif task == "regression":
            frame["y"] = 1000 + 50 * score
        else:
            frame["y"], frame["z"] = (score > 0).astype(int), (age > 60).astype(int)
        frame.loc[::9, "dose"] = np.nan
        found[ward] = frame
    return found


def trained(method: str, task: str, out: Path, **settings: Any) -> tuple[Any, pandas.DataFrame]:
    data = wards(task)
    target = "y,z" if task == "multilabel" else "y"
    result = sparsona.run(method, data=data, target=target, task=task, categorical="sex", rounds=2, out=out, **settings)
    return result.models["east"], data["east"].drop(columns=["y", "z"], errors="ignore")


def by_numpy(folder: Path, rows: pandas.DataFrame) -> Array:
    """The numbers that the script of docs/models.md prints, a row each; class names are left out."""
    rows.to_csv(folder / "rows.csv", index=False)
    command = [sys.executable, str(SCRIPT), "east.npz", "rows.csv", "--probabilities"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    lines = [line.split(",") for line in done.stdout.splitlines()]
    return np.array([[float(cell) for cell in line if not cell.isalpha()] for line in lines])


def by_onnx(folder: Path, rows: pandas.DataFrame) -> tuple[Array, ...]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(folder / "east.onnx")
    columns = {name: rows[[name]].to_numpy(object if name == "sex" else np.float32) for name in rows}
    found: tuple[Array, ...] = tuple(session.run(None, columns))
    return found


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
@pytest.mark.parametrize("method", ["alone-trees", "alone-linear", "naive", "local", "fedem", "fedavg"])
def test_every_format_predicts_what_the_run_predicts(method: str, task: str, tmp_path: Path) -> None:
    if method == "fedem" and task != "classification":
        pytest.skip("it mixes probabilities of classes")
    pool = {"pool": ["trees", "linear", "shared"]} if method == "fedavg" else {}
    model, rows = trained(method, task, tmp_path / "run", personal=pool)
    for ending in ("npz", "onnx", "safetensors"):
        export_model(tmp_path / "run", "east", tmp_path / f"east.{ending}")
    script, graph = by_numpy(tmp_path, rows), by_onnx(tmp_path, rows)
    expected = model.predict(rows)
    if task == "classification":
        assert script == pytest.approx(model.probabilities(rows), abs=2e-5)
        assert graph[1] == pytest.approx(model.probabilities(rows), abs=2e-5)
        assert graph[0].tolist() == expected.tolist()
    elif task == "regression":
        assert script[:, 0] == pytest.approx(expected.ravel(), rel=1e-5)
        assert graph[0].ravel() == pytest.approx(expected.ravel(), rel=1e-5)
    else:
        assert script[:, :2].astype(int).tolist() == expected.astype(int).tolist()
        assert script[:, 2:] == pytest.approx(model.probabilities(rows), abs=2e-5)
        assert graph[0].astype(int).tolist() == expected.astype(int).tolist()


def test_a_process_that_has_trained_nothing_predicts_with_a_pool(tmp_path: Path) -> None:
    model, rows = trained("fedthin", "classification", tmp_path / "run", personal={"pool": ["trees", "linear"]})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    export_model(tmp_path / "run", "east", tmp_path / "east.safetensors")
    command = [sys.executable, "-m", "sparsona", "predict", "east.safetensors", "rows.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == model.predict(rows).tolist()


def test_the_text_is_lightgbms_own(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    trained("alone-trees", "regression", tmp_path / "run")
    export_model(tmp_path / "run", "east", tmp_path / "east.txt")
    export_model(tmp_path / "run", "east", tmp_path / "east.txt")  # it replaces its own kind
    booster = lightgbm.Booster(model_file=str(tmp_path / "east.txt"))
    assert booster.num_feature() == 5
    assert np.isfinite(booster.predict(np.zeros((2, 5)))).all()


def test_an_owners_file_is_exported_without_the_run(tmp_path: Path) -> None:
    trained("alone-trees", "regression", tmp_path / "run")
    own = tmp_path / "owner.safetensors"
    export_model(tmp_path / "run", "east", own)
    export_model(own, "", tmp_path / "own.npz")
    export_model(tmp_path / "run", "east", tmp_path / "east.npz")
    assert (tmp_path / "own.npz").read_bytes() == (tmp_path / "east.npz").read_bytes()
    with pytest.raises(InputError, match="is the model of east, not of west"):
        export_model(own, "west", tmp_path / "west.npz")


def test_what_has_no_trees_has_no_text(tmp_path: Path) -> None:
    trained("alone-linear", "regression", tmp_path / "run")
    with pytest.raises(InputError, match="has no trees"):
        export_model(tmp_path / "run", "east", tmp_path / "east.txt")
