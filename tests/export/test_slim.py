"""A run's models as small nets in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparsona
from sparsona.data import load
from sparsona.errors import InputError
from sparsona.export.slim import export_slim, load_slim
from sparsona.methods.pfedgate.gate import Gated


def run(method: str, out: Path, **options: Any) -> sparsona.Result:
    return sparsona.run(method, data="digits", clients=3, rounds=2, out=out, options=options, evaluation={"every": 0})


def test_the_small_net_of_a_gated_model_predicts_the_same(tmp_path: Path) -> None:
    result = run("pfedgate", tmp_path / "run", density=0.3, test_batch=0)
    exported = export_slim(tmp_path / "run", "c1", tmp_path / "c1.safetensors")
    assert exported.after < 0.5 * exported.before
    model = result.models["c1"]
    assert isinstance(model.model, Gated)
    images = load("digits").inputs[:50]
    with torch.no_grad():
        answers = load_slim(tmp_path / "c1.safetensors")(model.runner.prepare(torch.from_numpy(images)))
    assert np.array_equal(answers.argmax(1).numpy(), model.predict(images))
    whole = model.runner.outputs(model.model.vector(), model.runner.prepare(torch.from_numpy(images)))
    assert torch.allclose(answers, whole, atol=1e-5)


def test_a_sparse_vector_becomes_a_small_net_too(tmp_path: Path) -> None:
    result = run("heterofl", tmp_path / "run", full=0.0, rate=0.5)
    exported = export_slim(tmp_path / "run", "c0", tmp_path / "c0.safetensors")
    assert exported.after < 0.6 * exported.before
    images = load("digits").inputs[:50]
    with torch.no_grad():
        prepared = result.models["c0"].runner.prepare(torch.from_numpy(images))
        answers = load_slim(tmp_path / "c0.safetensors")(prepared)
    assert np.array_equal(answers.argmax(1).numpy(), result.models["c0"].predict(images))


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    run("fedem", tmp_path / "run")
    with pytest.raises(InputError, match=r"ends in \.safetensors"):
        export_slim(tmp_path / "run", "c0", tmp_path / "x.npz")
    with pytest.raises(InputError, match="did you mean"):
        export_slim(tmp_path / "run", "c00", tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="Mixture"):
        export_slim(tmp_path / "run", "c0", tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="cannot read"):
        load_slim(tmp_path / "nothing.safetensors")
