"""Which modules are chains of linear layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.models.small import logistic, mlp
from sparsona.training.chain import RELU, SIGMOID, TANH, LinearLayer, linear_chain


def chain(*layers: nn.Module) -> bool:
    return isinstance(linear_chain(nn.Sequential(*layers)), tuple)


def test_chains_are_recognised() -> None:
    assert chain(nn.Flatten(), nn.Linear(4, 3, bias=False), nn.Tanh(), nn.Linear(3, 2), nn.Sigmoid())
    assert chain(nn.Linear(4, 3), nn.Identity())
    assert linear_chain(mlp((1, 2, 2), 3, hidden=2)) == (LinearLayer(0, 8, 2, 4, RELU), LinearLayer(10, 16, 3, 2))
    assert linear_chain(logistic((64,), 10)) == (LinearLayer(0, 640, 10, 64),)


def test_activations_are_told_apart() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 2), nn.ReLU())
    found = linear_chain(net)
    assert not isinstance(found, str)
    assert [layer.activation for layer in found] == [TANH, SIGMOID, RELU]


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x) + x
        return out


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.layer(x), 0.5)


def frozen() -> nn.Module:
    module = nn.Linear(4, 3)
    module.bias.requires_grad = False
    return module


SHARED = nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "buffers"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 4)), "conv"),
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), "dropout"),
        (nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2)), "GELU"),
        (nn.Sequential(SHARED, nn.ReLU(), SHARED), "each layer once"),
        (nn.Sequential(nn.ReLU(), nn.Linear(4, 3)), "relu"),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Tanh()), "tanh"),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True), nn.Linear(3, 1)), ""),
        (Skipping(), "chain of layers"),
        (Dropping(), "dropout"),
        (frozen(), "frozen"),
    ],
)
def test_what_is_none_is_said(module: nn.Module, why: str) -> None:
    found = linear_chain(module)
    assert why in found if isinstance(found, str) else why == ""
