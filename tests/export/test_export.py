"""Models that leave: files that carry everything, and predictions from raw rows outside of the package."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import sparsona
from sparsona.errors import DataError, InputError
from sparsona.export.files import read_model
from sparsona.export.predict import load_model, predict_file, write_predictions
from sparsona.export.run import export_model

pandas = pytest.importorskip("pandas")
DOCS = Path(__file__).parents[2] / "docs" / "models.md"


def wards(rows: int = 60) -> dict[str, Any]:
    """Two owners' tables with numbers, missing ones, categories by text and by number, and classes by name."""
    rng = np.random.default_rng(1)
    found = {}
    for ward in ("east", "west/ß"):
        age = rng.normal(50, 10, rows)
        sex, kind = rng.choice(["m", "f"], rows), rng.integers(1, 4, rows)
        label = np.where(age + 8 * (sex == "m") + 4 * kind + rng.normal(size=rows) > 62, "ill", "well")
        age[rng.random(rows) < 0.2] = np.nan
        found[ward] = pandas.DataFrame({"age": age, "sex": sex, "kind": kind, "label": label})
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "run"
    sparsona.run("fedavg", data=wards(), rounds=4, categorical="sex,kind", out=out)
    return out


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_file_predicts_as_the_run_does(run: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"model{suffix}"
    export_model(run, "west/ß", file)
    rows = wards()["east"].drop(columns="label")[["kind", "sex", "age"]]  # another order, no target
    loaded = load_model(file)
    expected = sparsona.load(run).models["west/ß"]
    assert loaded.predict(rows).tolist() == expected.predict(rows).tolist()
    assert set(loaded.predict(rows).tolist()) == {"ill", "well"}
    assert loaded.card == expected.card
    assert (loaded.card.client, loaded.card.model, loaded.card.schema.classes) == ("west/ß", "mlp", ("ill", "well"))


def test_the_card_is_json_with_documented_keys(run: Path, tmp_path: Path) -> None:
    export_model(run, "east", tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as stored:
        card = json.loads(str(stored["sparsona"]))
        shapes = {name: list(stored[name].shape) for name in stored.files if name not in ("sparsona", "sha256")}
    text = DOCS.read_text(encoding="utf-8")
    assert all(f"`{key}`" in text for key in (*card, *card["schema"]))
    assert card["tensors"] == shapes
    assert card["format"] == 1
    assert [one["kind"] for one in card["inputs"]] == ["number", "missing", *["equals"] * 5]
    assert card["inputs"][4]["value"] == 1.0
    assert card["inputs"][2] == {"kind": "equals", "column": "sex", "value": "f"}


def test_ten_lines_of_numpy_predict_outside_of_the_package(run: Path, tmp_path: Path) -> None:
    """The lines of docs/models.md, run by an interpreter that cannot import sparsona or torch."""
    (block,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert block == (DOCS.parents[1] / "examples" / "predict.py").read_text(encoding="utf-8")
    guard = "import sys\nsys.modules['sparsona'] = sys.modules['torch'] = None\n"
    (tmp_path / "predict.py").write_text(guard + block, encoding="utf-8")
    export_model(run, "east", tmp_path / "east.npz")
    rows = wards()["west/ß"]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    command = [sys.executable, "predict.py", "east.npz", "rows.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == sparsona.load(run).models["east"].predict(rows).tolist()


def test_predict_writes_a_csv_in_the_owners_words(run: Path, tmp_path: Path) -> None:
    export_model(run, "east", tmp_path / "east.safetensors")
    rows = wards()["east"]
    rows.drop(columns="label").to_csv(tmp_path / "rows.csv", index=False)
    out = io.StringIO()
    assert predict_file(tmp_path / "east.safetensors", tmp_path / "rows.csv", out) == 60
    header, *lines = out.getvalue().splitlines()
    assert header == "prediction,p(ill),p(well)"
    model = sparsona.load(run).models["east"]
    assert [line.split(",")[0] for line in lines] == model.predict(rows).tolist()
    assert [float(line.split(",")[1]) for line in lines] == pytest.approx(model.probabilities(rows)[:, 0], abs=1e-6)


def test_onnx_predicts_from_raw_columns(run: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    export_model(run, "east", tmp_path / "east", format="onnx")
    session = runtime.InferenceSession(tmp_path / "east")
    rows = wards()["west/ß"]
    rows.loc[0, "sex"] = "unheard of"
    rows.loc[1, "kind"] = 99
    columns = {
        "age": rows[["age"]].to_numpy(np.float32),
        "sex": rows[["sex"]].to_numpy(object),
        "kind": rows[["kind"]].to_numpy(np.float32),
    }
    prediction, probabilities = session.run(["prediction", "probabilities"], columns)
    model = sparsona.load(run).models["east"]
    assert prediction.tolist() == model.predict(rows).tolist()
    assert np.allclose(probabilities, model.probabilities(rows), atol=1e-6)
    card = json.loads(session.get_modelmeta().custom_metadata_map["sparsona"])
    assert card["schema"]["classes"] == ["ill", "well"]


@pytest.mark.parametrize(
    ("model", "data"),
    [("logistic", "digits"), ("mlp:12", "digits"), ("convnet2", "images"), ("lenet5", "images"), ("mlp", "numbers")],
)
def test_onnx_of_other_nets_and_tasks(tmp_path: Path, model: str, data: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    x: Any = rng.normal(9, 4, (80, 3)).astype(np.float32)
    given: Any = data
    if data == "images":
        x = rng.integers(0, 256, (80, 1, 20, 20), dtype=np.uint8)
        given = {"a": (x, rng.integers(5, 7, 80)), "b": (x, rng.integers(5, 7, 80))}
    if data == "numbers":
        given = {"a": (x, 1e4 + 1e3 * x[:, 0]), "b": (x, 1e4 + 1e3 * x[:, 1])}
    settings: dict[str, Any] = {"clients": 2, "partition": "iid"} if data == "digits" else {}
    result = sparsona.run("fedavg", data=given, model=model, rounds=1, out=tmp_path / "run", **settings)
    client = min(result.models)
    export_model(tmp_path / "run", client, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    if data == "digits":
        x = sparsona.data.load("digits").inputs[:80]
    columns = {"x": x} if data != "numbers" else {f"x{k}": x[:, k : k + 1] for k in range(3)}
    prediction = session.run(["prediction"], columns)[0]
    expected = result.models[client].predict(x)
    if data == "numbers":
        assert np.allclose(prediction, expected, rtol=1e-5)
        assert 5e3 < prediction.mean() < 5e4
    else:
        assert (prediction == expected).mean() > 0.97, "a tie may fall the other way"


def test_a_model_that_is_no_mixture_leaves_as_safetensors(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = sparsona.run("pfedgate", data=wards(), rounds=1, categorical="sex,kind", out=run)
    export_model(run, "east", tmp_path / "east.safetensors")
    rows = wards()["east"]
    again = load_model(tmp_path / "east.safetensors")
    assert again.predict(rows).tolist() == result.models["east"].predict(rows).tolist()
    for suffix in ("npz", "onnx"):
        with pytest.raises(InputError, match=r"not one set of weights: export it as .safetensors"):
            export_model(run, "east", tmp_path / f"east.{suffix}")


@pytest.mark.parametrize("method", ["fedavg", "local"])
def test_statistics_of_batch_norm_leave_with_the_model(tmp_path: Path, method: str) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = (x[:, 0] > 0).astype(int)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    given: dict[str, Any] = {"data": {"a": (x, y), "b": (3 * x + 5, y)}, "model": net, "rounds": 3}
    result = sparsona.run(method, out=tmp_path / "run", **given)
    held = sparsona.run(method, **given)
    for client in "ab":
        again = sparsona.load(tmp_path / "run", model=net).models[client]
        statistics = again.tensors()["1.running_var"]
        assert not np.allclose(statistics, 1.0), "they were trained"
        for model in (result.models[client], held.models[client]):
            assert np.array_equal(model.tensors()["1.running_var"], statistics)
            assert np.array_equal(model.probabilities(x), again.probabilities(x))


def test_a_net_given_in_python_is_given_again(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    y = (x[:, 0] > 0).astype(int)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    result = sparsona.run("fedavg", data={"a": (x, y), "b": (x, y)}, model=net, rounds=2, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"was given in Python and has no name: give it again with sparsona.load"):
        sparsona.load(tmp_path / "run").models["a"].predict(x)
    again = sparsona.load(tmp_path / "run", model=net).models["a"]
    assert again.predict(x).tolist() == result.models["a"].predict(x).tolist()


def test_raw_rows_that_do_not_fit_are_told(run: Path) -> None:
    model = sparsona.load(run).models["east"]
    with pytest.raises(DataError, match="the rows has no column 'age', which the model needs; add it"):
        model.predict({"sex": ["m"], "kind": [1]})
    with pytest.raises(DataError, match=r"have shape \(4,\); give \(rows, 3\): age, sex, kind"):
        model.predict(np.zeros(4))
    with pytest.raises(DataError, match="row 1, column 'age': 'old' is not a number"):
        model.predict({"age": ["1", "old"], "sex": ["m", "f"], "kind": [1, 2]})
    with pytest.raises(DataError, match=r"column 'sex' has values of shape \(1,\), 'age' of \(2,\); give every column"):
        model.predict({"age": [1, 2], "sex": "m", "kind": [1, 2]})


def test_a_mapping_of_single_values_is_one_row(run: Path) -> None:
    model = sparsona.load(run).models["east"]
    for row in ({"age": 70, "sex": "m", "kind": 3}, {"age": None, "sex": "f", "kind": 1}):
        assert model.predict(row).tolist() == model.predict({k: [v] for k, v in row.items()}).tolist()
        assert len(model.predict(row)) == 1


def test_files_that_are_no_models_are_told(run: Path, tmp_path: Path) -> None:
    for name in ("m.npz", "m.safetensors"):
        export_model(run, "east", tmp_path / name)
    npz = (tmp_path / "m.npz").read_bytes()
    for name, content, problem in (
        ("a.npz", b"hello", "is damaged, or no model"),
        ("a.safetensors", b"hello", "is damaged, or no model"),
        ("a.csv", b"hello", r"give a model file, which ends in \.safetensors or \.npz$"),
        ("a.onnx", b"hello", r"give the model as \.safetensors or \.npz, or run it with onnxruntime$"),
        ("empty.npz", b"", "empty.npz is empty: write it again with sparsona export"),
        ("empty.safetensors", b"", "empty.safetensors is empty: write it again with sparsona export"),
        ("cut.npz", npz[: len(npz) // 2], r"\(it is no whole npz file\): write it again with sparsona export$"),
        ("other.npz", (tmp_path / "m.safetensors").read_bytes(), r"no model \(it is no whole npz file\)"),
        ("other.safetensors", npz, r"no model \(it is no whole safetensors file\)"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=problem):
            read_model(tmp_path / name)
    np.savez(tmp_path / "b.npz", weight=np.zeros(3))
    with pytest.raises(InputError, match="says nothing about its model: write it with sparsona export"):
        read_model(tmp_path / "b.npz")
    with pytest.raises(InputError, match=r"cannot read .*none.npz"):
        read_model(tmp_path / "none.npz")
    with pytest.raises(InputError, match="has no client 'eats'; did you mean 'east'"):
        export_model(run, "eats", tmp_path / "x.npz")
    with pytest.raises(InputError, match=r"give --format, or a name that ends in .safetensors, .npz, .onnx"):
        export_model(run, "east", tmp_path / "x.pt")


def test_onnx_takes_columns_and_gives_targets_far_from_zero(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(1)
    x = rng.normal((1.7e9, 0), 1, (80, 2))
    data = {"a": (x, 1e9 + 10 * x[:, 1])}
    result = sparsona.run("local", data=data, rounds=1, task="regression", out=tmp_path / "run")
    export_model(tmp_path / "run", "a", tmp_path / "a.onnx")
    session = runtime.InferenceSession(tmp_path / "a.onnx")
    prediction = session.run(["prediction"], {"x0": x[:, :1], "x1": x[:, 1:].astype(np.float32)})[0]
    expected = result.models["a"].predict(x)
    assert np.abs(prediction - expected).max() < 1e-3 < np.ptp(expected)


def test_a_threshold_decides_in_every_format(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    rule = {"positive": "ill", "threshold": "sensitivity=1.0"}
    sparsona.run("fedavg", data=wards(200), rounds=3, categorical="sex,kind", evaluation=rule, out=tmp_path / "run")
    model = sparsona.load(tmp_path / "run").models["east"]
    rows = wards(200)["east"]
    expected = np.where(model.probabilities(rows)[:, 0] >= model.card.threshold, "ill", "well").tolist()
    likeliest = np.where(model.probabilities(rows)[:, 0] >= 0.5, "ill", "well").tolist()
    assert expected != likeliest
    assert model.predict(rows).tolist() == expected
    for suffix in ("safetensors", "npz", "onnx"):
        export_model(tmp_path / "run", "east", tmp_path / f"east.{suffix}")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    count = write_predictions(tmp_path / "east.npz", tmp_path / "rows.csv", tmp_path / "out.csv", "sex", exact=True)
    header, *lines = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert count == len(lines)
    assert header == "sex,prediction,p(ill),p(well)"
    assert [line.split(",")[1] for line in lines] == expected
    assert [line.split(",")[0] for line in lines] == rows["sex"].tolist()
    columns = {
        "age": rows[["age"]].to_numpy(np.float32),
        "sex": rows[["sex"]].to_numpy(object),
        "kind": rows[["kind"]].to_numpy(np.float32),
    }
    session = runtime.InferenceSession(tmp_path / "east.onnx")
    assert session.run(["prediction"], columns)[0].tolist() == expected
    with pytest.raises(InputError, match="no column"):
        write_predictions(tmp_path / "east.npz", tmp_path / "rows.csv", tmp_path / "out.csv", "agee")
