from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.training.vector import FlatModule


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
    flat.load_buffers(np.arange(1, 7, dtype=np.float32))
    assert module[1].running_var.tolist() == [4, 5, 6]
    flat.gradient.zero_()
    module(torch.randn(5, 2, 4, 4)).sum().backward()
    assert module[3].bias.grad.data_ptr() == flat.gradient[flat.layout["3.bias"].slice].data_ptr()
    assert flat.layout.named(flat.gradient.numpy())["3.bias"].tolist() == [5, 5, 5, 5]
    assert flat.read().tolist() == vector.tolist(), "BatchNorm's statistics are no part of the vector"
    assert (flat.read_buffers() != np.arange(1, 7)).all()
    assert flat.read_all().tolist() == [*flat.read(), *flat.read_buffers()]
    flat.load_all(np.zeros(flat.layout.size + 6, np.float32))
    assert not flat.read_all().any()


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
