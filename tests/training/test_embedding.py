"""Embeddings and terms of the loss: exact on nets small enough to compute by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.methods.fedavg import FedAvg
from sparsona.testing import tiny_setup
from sparsona.training.embedding import LastInput
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner


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
