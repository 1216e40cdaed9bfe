"""What of a net is trained: layers by name, and low-rank adapters."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import sparsona
from sparsona.base import base_hash
from sparsona.chance import Chance
from sparsona.errors import InputError
from sparsona.export.predict import load_model
from sparsona.layout import Layout, base_of
from sparsona.training.adapters import TrainedPart, adapt, head_of


class Attentive(nn.Module):
    """A small transformer on rows of five numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(1, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(8, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(self.body(self.up(inputs[..., None])).mean(1))  # type: ignore[no-any-return]


def rows(clients: int = 3) -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return {f"w{i}": (rng.normal(size=(40, 5)).astype("float32"), rng.integers(0, 2, 40)) for i in range(clients)}


def chain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))


def images() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(64, 2))


def trained(net: nn.Module) -> list[str]:
    return [tensor.name for tensor in Layout.of(net).tensors]


def test_the_head_is_the_last_child_with_parameters() -> None:
    assert head_of(Attentive()) == "out"
    assert trained(adapt(Attentive(), ["head"], "", Chance(0))) == ["out.weight", "out.bias"]


def test_a_layer_called_head_is_meant_by_its_name() -> None:
    net = nn.ModuleDict({"head": nn.Linear(2, 2), "last": nn.Linear(2, 1)})
    assert trained(adapt(net, ["head"], "", Chance(0))) == ["head.weight", "head.bias"]


def test_parameters_are_named_by_prefix_or_pattern() -> None:
    assert trained(adapt(chain(), ["0.bias", "2"], "", Chance(0))) == ["0.bias", "2.weight", "2.bias"]
    assert trained(adapt(chain(), ["*.bias"], "", Chance(0))) == ["0.bias", "2.bias"]


@pytest.mark.parametrize(
    ("trainable", "lora", "problem"),
    [
        (["haed"], "", "haed"),
        ([], "rank=0", "rank=0"),
        ([], "rang=2", "rang=2"),
        ([], "rank=2,targets=query", "query"),
    ],
)
def test_what_matches_nothing_is_refused(trainable: list[str], lora: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        adapt(chain(), trainable, lora, Chance(0))


@pytest.mark.parametrize(
    ("net", "shape"),
    [(chain(), (3, 5)), (images(), (3, 3, 8, 8)), (Attentive(), (3, 5))],
    ids=["linear", "conv", "attention"],
)
def test_adapters_begin_as_nothing_and_then_move_the_outputs(net: nn.Module, shape: tuple[int, ...]) -> None:
    inputs = torch.randn(shape)
    before = net.eval()(inputs)
    ours = adapt(copy.deepcopy(net), [], "rank=2", Chance(0)).eval()
    assert torch.allclose(ours(inputs), before, atol=1e-6)
    assert not any("lora" in name for name, _ in base_of(ours))
    ours(inputs).sum().backward()
    for name, parameter in ours.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    assert not torch.allclose(ours(inputs), before, atol=1e-3)
    with torch.no_grad():
        assert torch.allclose(pickle.loads(pickle.dumps(ours))(inputs), ours(inputs), atol=1e-5)  # noqa: S301


def test_an_adapter_is_a_product_of_low_rank() -> None:
    net = adapt(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), [], "rank=1,alpha=3", Chance(0))
    layer: Any = net[0]
    with torch.no_grad():
        layer.lora_a.weight.copy_(torch.tensor([[1.0, 0.0, 2.0, 0.0]]))
        layer.lora_b.weight.copy_(torch.tensor([[1.0], [0.0], [-1.0]]))
        moved = layer(torch.ones(1, 4)) - nn.functional.linear(torch.ones(1, 4), layer.weight, layer.bias)
    assert torch.allclose(moved, torch.tensor([[9.0, 0.0, -9.0]]), atol=1e-5)


def test_a_run_sends_the_adapters_alone(tmp_path: Path) -> None:
    net = chain()
    result = sparsona.run("fedavg", data=rows(), model=net, rounds=2, lora="rank=2", out=tmp_path / "run")
    assert result.summary["weights"] == 2 * 5 + 16 * 2 + 34
    assert all(parameter.requires_grad for parameter in net.parameters()), "the caller's net stays as it is"
    again = sparsona.load(tmp_path / "run", model=net)
    x = rows()["w1"][0]
    assert np.array_equal(again.models["w1"].predict(x), result.models["w1"].predict(x))
    with pytest.raises(InputError, match="is needed"):
        _ = sparsona.load(tmp_path / "run", model=chain()).models["w1"]


def test_a_named_model_takes_its_base_from_a_file(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"clients": 2, "rounds": 1, "partition": "iid", "model": "mlp:8"}
    done = sparsona.run("fedavg", **settings)
    file = tmp_path / "base.safetensors"
    save_file(done.models["c0"].module().half().state_dict(), file)
    out = tmp_path / "run"
    run = sparsona.run("fedavg", **settings, trainable="head", base=str(file), out=out)
    module = run.models["c1"].module()
    assert base_hash(module) == run.summary["base"]
    assert {tensor.dtype for _, tensor in base_of(module)} == {torch.float16}
    assert run.shared is not None
    x = np.zeros((2, 1, 8, 8), np.uint8)
    found = sparsona.load(out, base=file).models["c1"]
    assert np.allclose(found.probabilities(x), run.models["c1"].probabilities(x))
    with pytest.raises(InputError, match="is needed"):
        _ = load_model(out / "models" / "c1.safetensors")
    found.save(tmp_path / "whole.safetensors", whole=True)
    whole = load_model(tmp_path / "whole.safetensors")
    assert np.allclose(whole.probabilities(x), run.models["c1"].probabilities(x))
    module.load_state_dict(whole.module().state_dict(), strict=True)


def test_a_file_without_the_base_is_refused(tmp_path: Path) -> None:
    save_file({"other": torch.zeros(2)}, tmp_path / "base.safetensors")
    for path, problem in ((tmp_path / "none.safetensors", "no such file"), (tmp_path / "base.safetensors", "0.weight")):
        with pytest.raises(InputError, match=problem):
            TrainedPart(("head",), "", str(path)).of(chain(), Chance(0))


def test_hugging_face_nets_get_the_adapters_of_peft() -> None:
    pytest.importorskip("peft", reason="needs the extra `adapters`")
    transformers = pytest.importorskip("transformers", reason="needs the extra `adapters`")
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=2
    )
    net = transformers.BertForSequenceClassification(config)
    names = trained(adapt(net, [], "rank=2,targets=query|value", Chance(0)))
    assert len(names) == 6
    assert names[-2:] == ["classifier.weight", "classifier.bias"]
    assert all("lora_" in name for name in names[:-2])
