"""The base of a model: never in a vector, a message or a file; the same bits on every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sparsona
from sparsona.base import base_hash, copied, raw_bytes
from sparsona.data.dataset import Array
from sparsona.engines.shipping import setup_arrays, setup_of
from sparsona.errors import InputError
from sparsona.experiment import make_method
from sparsona.layout import Layout, base_of
from sparsona.message import Sparse
from sparsona.methods.fedavg import FedAvg
from sparsona.testing import tiny_setup
from sparsona.testing.privacy import Tap
from sparsona.testing.tiny import run
from sparsona.training.vector import FlatModule


class Body(nn.Module):
    """A frozen body of any type and a trained head."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.dtype = dtype
        self.first = nn.Linear(5, 40)
        self.body = nn.Sequential(self.first, nn.BatchNorm1d(40), nn.ReLU()).to(dtype).requires_grad_(False)
        self.head = nn.Linear(40, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs.to(self.dtype)).float())  # type: ignore[no-any-return]


def rows(clients: int = 3) -> dict[str, tuple[Array, Array]]:
    rng = np.random.default_rng(0)
    return {f"w{i}": (rng.normal(size=(40, 5)).astype("float32"), rng.integers(0, 2, 40)) for i in range(clients)}


def made(dtype: torch.dtype = torch.float32) -> Body:
    torch.manual_seed(3)
    return Body(dtype)


def test_the_layout_has_what_is_trained() -> None:
    net = made()
    assert [tensor.name for tensor in Layout.of(net).tensors] == ["head.weight", "head.bias"]
    assert Layout.of_buffers(net).size == 0
    assert {name.partition(".")[0] for name, _ in base_of(net)} == {"first", "body"}


def test_an_ordinary_net_has_no_base() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert base_hash(net) == ""
    assert Layout.of_buffers(net).size == 4


def test_a_net_without_trained_parameters_is_refused() -> None:
    with pytest.raises(InputError, match="all are frozen"):
        Layout.of(nn.Linear(2, 1).requires_grad_(False))


def test_what_is_trained_must_be_float32() -> None:
    with pytest.raises(InputError, match="float16"):
        Layout.of(nn.Linear(2, 1).half())


def test_shared_weights_count_once() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    flat = FlatModule(net)
    flat.load(np.arange(flat.layout.size, dtype=np.float32))
    assert flat.layout.size == 15
    assert torch.equal(net.state_dict()["0.weight"], net.state_dict()["1.weight"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_hash_follows_the_content(dtype: torch.dtype) -> None:
    one, other = made(dtype), made(dtype)
    assert base_hash(one) == base_hash(other) == base_hash(copied(one))
    other.head.weight.data.add_(1)
    assert base_hash(one) == base_hash(other)
    other.first.weight.data[0, 0] += 1
    assert base_hash(one) != base_hash(other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_the_head_travels_and_the_base_stays(dtype: torch.dtype, tmp_path: Path) -> None:
    net = made(dtype)
    before = {name: raw_bytes(tensor).copy() for name, tensor in base_of(net)}
    training = {"weight_decay": 0.01, "batch": 10, "lr": 0.1}
    result = sparsona.run("fedavg", data=rows(), model=net, rounds=3, training=training, out=tmp_path / "run")
    assert result.summary["weights"] == 82
    assert result.summary["base"] == base_hash(net)
    assert result.summary["bytes"]["up"] < 3 * 3 * (82 * 4 + 200)
    assert set(result.models["w0"].tensors()) == {"head.weight", "head.bias"}
    assert all(np.array_equal(raw_bytes(tensor), before[name]) for name, tensor in base_of(net))
    again = sparsona.load(tmp_path / "run", model=net)
    assert np.array_equal(again.models["w1"].predict(rows()["w1"][0]), result.models["w1"].predict(rows()["w1"][0]))


def test_fedpse_sends_a_tenth_of_the_head() -> None:
    engine = run(make_method("fedpse", {"sparsity": 0.9}), engine=Tap, frozen=True).engine
    assert isinstance(engine, Tap)
    setup = tiny_setup(FedAvg(), frozen=True)
    head, wanted = setup.task.layout, sum(max(1, round(0.1 * one.size)) for one in setup.task.layout.tensors)
    sent = [
        len(part.indices) for _, message in engine.sent for part in message.parts.values() if isinstance(part, Sparse)
    ]
    assert len(sent) == len(engine.sent) > 0
    assert set(sent) == {wanted}
    assert head.size < sum(parameter.numel() for parameter in setup.module.parameters())


def test_another_base_is_another_digest_and_refused_where_it_is_named() -> None:
    net, other = made(), made()
    other.first.weight.data.mul_(2)
    one = sparsona.run("local", data=rows(), model=net, rounds=1)
    assert one.summary["digest"] != sparsona.run("local", data=rows(), model=other, rounds=1).summary["digest"]
    with pytest.raises(InputError, match="is needed"):
        sparsona.run("local", data=rows(), model=other, rounds=1, base=one.summary["base"])


def test_workers_map_the_base() -> None:
    setup = tiny_setup(FedAvg(), frozen=True)
    arrays = setup_arrays(setup)
    there = setup_of(arrays)
    assert base_hash(there.module) == base_hash(setup.module)
    for _, tensor in base_of(there.module):
        assert any(array.ctypes.data <= tensor.data_ptr() < array.ctypes.data + array.nbytes for array in arrays[4:-1])
    assert not any(parameter.requires_grad for parameter in there.module[0].parameters())  # type: ignore[index]


@pytest.mark.slow
def test_the_pool_gives_the_same_digest() -> None:
    here, pool = (
        sparsona.run("fedpse", data=rows(), model=nn.Sequential(*made().body, made().head), rounds=2, engine=engine)
        for engine in ("inprocess", "pool")
    )
    assert here.summary["digest"] == pool.summary["digest"]


def test_a_scripted_module_is_refused() -> None:
    scripted = torch.jit.trace(nn.Linear(5, 2), torch.zeros(1, 5))  # type: ignore[no-untyped-call]
    with pytest.raises(InputError, match="scripted or traced"):
        sparsona.run("fedavg", data=rows(), model=scripted, rounds=1)
