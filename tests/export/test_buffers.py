"""Models of nets with BatchNorm carry their buffers: in memory, in files, and in what they predict."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from torch import nn

import sparsona
from sparsona.data.schema.raw import encode_raw
from sparsona.errors import InputError
from sparsona.export.files import model_bytes, npz_bytes, read_model, safetensors_bytes
from sparsona.export.predict import PersonalModel, load_model


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def wards() -> dict[str, Any]:
    """Two wards whose inputs have other means: a common scale leaves them apart."""
    rng = np.random.default_rng(0)
    return {
        ward: (rng.normal(4 * i, 1 + i, (60, 5)).astype("float32"), rng.integers(0, 2, 60))
        for i, ward in enumerate(("east", "west"))
    }


def run(method: str, out: Path | None = None, engine: str = "inprocess") -> sparsona.Result:
    training = {"lr": 0.1, "batch": 8, "epochs": 2}
    return sparsona.run(method, data=wards(), model=net(), rounds=2, training=training, out=out, engine=engine)


def by_hand(model: PersonalModel, rows: Any) -> Any:
    """The module with the model's tensors, run by torch alone."""
    module = copy.deepcopy(net())
    module.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in model.tensors().items()})
    inputs = torch.from_numpy(np.ascontiguousarray(encode_raw(model.card.schema, rows, "rows")))
    with torch.no_grad():
        return module.eval()(model.runner.prepare(inputs)).numpy()


@pytest.mark.parametrize(("method", "shared"), [("fedavg", True), ("fedpse", False), ("spfl", False), ("local", False)])
def test_a_model_predicts_with_its_own_buffers_from_memory_and_from_a_file(
    method: str, shared: bool, tmp_path: Path
) -> None:
    held, stored = run(method), run(method, tmp_path / "run")
    again = sparsona.load(tmp_path / "run", model=net())
    rows = {ward: inputs[:9] for ward, (inputs, _) in wards().items()}
    names = {"1.running_mean", "1.running_var"}
    for ward, inputs in rows.items():
        one = held.models[ward]
        assert names <= set(one.tensors())
        assert np.abs(one.tensors()["1.running_mean"]).max() > 1e-3
        expected = one.outputs(inputs).numpy()
        np.testing.assert_allclose(expected, by_hand(one, inputs), atol=1e-5)
        for other in (stored.models[ward], again.models[ward]):
            assert all(np.array_equal(other.tensors()[name], value) for name, value in one.tensors().items())
            assert np.array_equal(other.outputs(inputs).numpy(), expected)
    east, west = (again.models[ward] for ward in rows)
    assert np.array_equal(east.buffers, west.buffers) == shared
    first = east.predict(rows["east"])
    west.predict(rows["west"])
    assert np.array_equal(east.predict(rows["east"]), first), "models share a net, and each brings its own buffers"


def test_buffers_come_back_from_other_processes(tmp_path: Path) -> None:
    here, there = run("spfl"), run("spfl", tmp_path / "run", "pool")
    for ward in ("east", "west"):
        assert np.array_equal(here.models[ward].buffers, there.models[ward].buffers)


def test_buffers_are_in_every_format_and_a_file_without_them_is_refused(tmp_path: Path) -> None:
    model = run("fedavg").models["east"]
    tensors, path = model.tensors(), tmp_path / "east.npz"
    path.write_bytes(npz_bytes(tensors, model.card))
    assert np.array_equal(load_model(path, net()).buffers, model.buffers)
    bare = {name: tensor for name, tensor in tensors.items() if "running" not in name}
    path = tmp_path / "bare.safetensors"
    path.write_bytes(safetensors_bytes(bare, model.card))
    with pytest.raises(InputError, match=r"'1\.running_mean' is only in one of them"):
        load_model(path, net())
    whole = tmp_path / "whole.safetensors"
    assert isinstance(model.model, np.ndarray)
    whole.write_bytes(model_bytes(model.model, model.runner.layout, model.card, {}))
    assert set(read_model(whole).tensors) == set(bare)


def test_a_file_has_the_same_bytes_whenever_it_is_written() -> None:
    card = run("fedavg").models["east"].card
    notes = {f"note {number}": str(number) for number in range(9)}
    tensors = {"b": np.ones(3, np.float32), "a": np.zeros(2, np.float32)}
    data = safetensors_bytes(tensors, card, notes)
    head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert list(head["__metadata__"]) == sorted(head["__metadata__"])
    assert safetensors_bytes(dict(reversed(tensors.items())), card, notes) == data
    assert load(data)["b"].tolist() == [1, 1, 1]
