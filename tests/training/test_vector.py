"""Embeddings and terms of the loss: exact on nets small enough to compute by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.methods.fedavg import FedAvg
from sparsona.testing import tiny_setup
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner
from sparsona.training.vector import FlatModule, LastInput


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))


def test_parameters_and_float_buffers_have_a_vector_each() -> None:
    layout, buffers = Layout.of(net()), Layout.of_buffers(net())
    assert [t.name for t in layout.tensors] == ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]
    assert layout.size == 54 + 3 + 3 + 3 + 48 + 4
    assert layout.layers == ("0", "1", "3")
    assert [t.name for t in buffers.tensors] == ["1.running_mean", "1.running_var"]
    assert buffers.lengths == (3, 3)
    assert Layout.of_buffers(nn.Linear(2, 2)).size == 0


def test_weights_gradients_and_buffers_are_views() -> None:
    flat = FlatModule(net())
    vector = np.arange(flat.layout.size).astype(np.float32) / np.float32(100)
    flat.load(vector)
    module: Any = flat.module
    assert module[3].bias.detach().tolist() == flat.layout.named(vector)["3.bias"].tolist()
    flat.load(np.arange(1, 7, dtype=np.float32), "buffers")
    assert module[1].running_var.tolist() == [4, 5, 6]
    flat.gradient.zero_()
    module(torch.randn(5, 2, 4, 4)).sum().backward()
    assert module[3].bias.grad.data_ptr() == flat.gradient[flat.layout["3.bias"].slice].data_ptr()
    assert flat.layout.named(flat.gradient.numpy())["3.bias"].tolist() == [5, 5, 5, 5]
    assert flat.read().tolist() == vector.tolist(), "BatchNorm's statistics are no part of the vector"
    assert (flat.read("buffers") != np.arange(1, 7)).all()
    assert flat.read("all").tolist() == [*flat.read(), *flat.read("buffers")]
    flat.load(np.zeros(flat.layout.size + 6, np.float32), "all")
    assert not flat.read("all").any()


def test_flat_computes_what_the_plain_module_computes() -> None:
    plain, inputs = net(), torch.randn(4, 2, 4, 4)
    expected = plain(inputs)
    assert torch.equal(FlatModule(net()).module(inputs), expected)


def test_tied_weights_appear_once() -> None:
    a = nn.Linear(3, 3, bias=False)
    b = nn.Linear(3, 3, bias=False)
    b.weight = a.weight
    flat = FlatModule(nn.Sequential(a, b))
    assert flat.layout.size == 9
    flat.load(np.eye(3, dtype=np.float32).ravel() * 2)
    assert torch.equal(flat.module(torch.eye(3)), torch.eye(3) * 4)


def test_read_is_a_copy() -> None:
    flat = FlatModule(nn.Linear(2, 1))
    before = flat.read()
    flat.load(before + 1)
    assert (flat.read() == before + 1).all()


def test_bad_modules_and_vectors_are_named() -> None:
    with pytest.raises(InputError, match="no parameters"):
        Layout.of(nn.ReLU())
    with pytest.raises(InputError, match=r"module\.float"):
        Layout.of(nn.Linear(2, 2).double())
    with pytest.raises(InputError, match="length 3"):
        FlatModule(nn.Linear(2, 2)).load(np.zeros(3, np.float32))


def test_integer_buffers_stay_local() -> None:
    assert "1.num_batches_tracked" not in [t.name for t in Layout.of_buffers(net()).tensors]


@pytest.fixture
def local() -> Local:
    setup = tiny_setup(FedAvg())
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    return Local("c0", 0, setup.task, setup.config, setup.federation.splits["c0"], runner)


def test_an_embedding_is_what_the_last_layer_gets(local: Local) -> None:
    weights, inputs = local.task.initial, local.inputs(slice(3))
    embeddings = local.embed(weights, inputs)
    assert embeddings.shape == (3, local.layout.width)
    head = {t.name: torch.from_numpy(weights[t.slice].reshape(t.shape)) for t in local.layout.tensors[-2:]}
    weight, bias = head.values()
    torch.testing.assert_close(embeddings @ weight.T + bias, local.runner.forward(weights, inputs))


def test_it_is_counted_as_one_pass(local: Local) -> None:
    local.embed(local.task.initial, local.inputs())
    one = local.runner.flops
    local.train(local.task.initial)
    assert local.runner.flops - one == 3 * one, "an epoch of training is three passes"


def test_rows_are_all_or_those_named(local: Local) -> None:
    rows = np.array([2, 0])
    torch.testing.assert_close(local.inputs(rows), local.inputs()[rows])
    np.testing.assert_array_equal(local.targets(rows), local.targets()[rows])
    assert len(local.inputs()) == len(local.targets()) == local.examples


def test_a_net_of_one_layer_embeds_its_inputs() -> None:
    net = nn.Linear(3, 2)
    with LastInput(net, Layout.of(net)) as last:
        net(torch.ones(1, 3))
    assert last.embeddings().tolist() == [[1, 1, 1]]
    net(torch.ones(1, 3))
    with pytest.raises(InputError, match="forward"):
        last.embeddings()


def test_a_term_of_the_loss_moves_the_weights(local: Local) -> None:
    """A term that is the task's loss again doubles the gradient: the same as twice the learning rate."""

    def again(outputs: torch.Tensor, embeddings: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        assert embeddings.requires_grad
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    config = replace(local.config, lr=0.01)
    one = local.train(local.task.initial, config, loss=again)
    other = local.train(local.task.initial, replace(config, lr=0.02))
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
    assert one.loss == pytest.approx(2 * other.loss, rel=1e-4)


def test_a_term_has_one_number_per_example(local: Local) -> None:
    with pytest.raises(InputError, match="one number per example"):
        local.train(local.task.initial, loss=lambda outputs, embeddings, targets: outputs.mean())
