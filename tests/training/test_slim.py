"""Smaller operators give what masks give: outputs, gradients, and files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.errors import InputError
from sparsona.methods.pfedgate.blocks import Cut
from sparsona.models import MODELS
from sparsona.training.chain import chain_of
from sparsona.training.slim import SlimNet, plan, small_module
from sparsona.training.vector import FlatModule

SHAPES = {
    "lenet-cifar": (3, 32, 32),
    "leaf-cnn": (1, 28, 28),
    "cnn-mcmahan": (1, 28, 28),
    "mlp": (1, 8, 8),
    "convnet2": (1, 28, 28),
}


def sparse(module: nn.Module, seed: int = 0, share: float = 0.3) -> tuple[FlatModule, Any]:
    flat = FlatModule(module)
    cut = Cut.of(flat.layout, 5)
    kept = np.array(cut.first) | (np.random.default_rng(seed).random(len(cut)) < share)
    mask = cut.mask(kept)
    flat.load(flat.read() * mask)
    return flat, mask


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_outputs_are_those_of_the_masked_net(name: str, seed: int) -> None:
    flat, mask = sparse(MODELS.get(name)(SHAPES[name], 10).eval(), seed)
    chain = chain_of(flat.module)
    net = SlimNet(chain, plan(chain, flat.layout, mask))
    net.load(flat.read())
    inputs = torch.randn(5, *SHAPES[name])
    with torch.no_grad():
        wanted = flat.module(inputs)
        assert torch.allclose(net(inputs), wanted, atol=1e-5)
        small = small_module(chain, net.tensors())
        assert torch.allclose(small(inputs), wanted, atol=1e-5)
    assert net.numbers() == sum(p.numel() for p in small.parameters())
    assert net.numbers() < 0.9 * flat.layout.size


@pytest.mark.parametrize("name", ["lenet-cifar", "leaf-cnn", "cnn-mcmahan", "mlp"])
def test_gradients_are_those_of_the_masked_net_on_the_mask(name: str) -> None:
    flat, mask = sparse(MODELS.get(name)(SHAPES[name], 10).train(), 3)
    chain = chain_of(flat.module)
    net = SlimNet(chain, plan(chain, flat.layout, mask, training=True))
    net.load(flat.read())
    inputs, targets = torch.randn(6, *SHAPES[name]), torch.randint(0, 10, (6,))
    flat.gradient.zero_()
    torch.autograd.backward(F.cross_entropy(flat.module(inputs), targets))
    torch.autograd.backward(F.cross_entropy(net(inputs, training=True), targets))
    found = torch.zeros_like(flat.gradient)
    found[net.index] = net.gradient
    inside = torch.from_numpy(mask)
    assert torch.allclose(found[inside], flat.gradient[inside], atol=1e-6)


def test_positions_of_kept_rows() -> None:
    flat, mask = sparse(nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 3)))
    chain = chain_of(flat.module)
    net = SlimNet(chain, plan(chain, flat.layout, mask))
    for small, whole in enumerate(net.index.tolist()):
        assert net.offset(whole) == small
    dropped = next(r for r in range(10) if r not in net.rows[0].kept)
    with pytest.raises(InputError, match="not computed"):
        net.offset(4 * dropped)


def test_a_constant_that_meets_padding_is_computed() -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1), nn.Flatten(), nn.Linear(32, 2))
    flat = FlatModule(module)
    mask = np.ones(flat.layout.size, np.bool_)
    mask[9:36] = False  # channels 1, 2 and 3 have no weights
    mask[38:40] = False  # and 2 and 3 no bias either
    weights = flat.read() * mask
    weights[37] = 1.5
    flat.load(weights)
    chain = chain_of(module)
    rows = plan(chain, flat.layout, mask)
    assert rows[0].kept.tolist() == [0, 1]
    net = SlimNet(chain, rows)
    net.load(weights)
    inputs = torch.randn(3, 1, 6, 6)
    assert torch.allclose(net(inputs), module(inputs), atol=1e-6)


def test_what_is_before_a_dropout_is_computed_in_training() -> None:
    flat, mask = sparse(MODELS.get("convnet2")((1, 28, 28), 10))
    chain = chain_of(flat.module)
    assert len(plan(chain, flat.layout, mask, training=True)[1].constant) == 0
    assert len(plan(chain, flat.layout, mask)[1].constant) > 0


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(self.fc(x))
        return out


class Choosy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (Twice(), "use each layer once"),
        (Choosy(), "cannot be traced"),
        (MODELS.get("resnet18-gn")((3, 32, 32), 10), "GroupNorm"),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 2)), "Softmax"),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "end in a layer"),
    ],
)
def test_what_is_no_chain_says_so(module: nn.Module, why: str) -> None:
    with pytest.raises(InputError, match=why):
        chain_of(module)


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2)])
def test_modules_as_layers(pool: nn.Module) -> None:
    module = nn.Sequential(nn.Conv2d(1, 10, 3), pool, nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(90, 3)).eval()
    flat, mask = sparse(module, 1, 0.1)
    chain = chain_of(module)
    net = SlimNet(chain, plan(chain, flat.layout, mask))
    net.load(flat.read())
    inputs = torch.randn(4, 1, 8, 8)
    assert len(net.rows[0].constant)
    assert torch.allclose(net(inputs), module(inputs), atol=1e-6)
