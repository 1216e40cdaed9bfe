"""The operations of a net: those of convolutions and linear layers; all others are left out.

A weight costs a multiplication and an addition for every output that it enters, a bias an addition. A sparse net costs
what its active entries cost. A training step costs three forward passes, as FedSpa and RigL count.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from torch import nn

from sparsona.layout import Layout
from sparsona.message import Mask

TRAINING = 3
"""The cost of a training step in forward passes: one forward, two backward, to the inputs and to the weights."""


def costs(module: nn.Module, sample: torch.Tensor) -> dict[str, int]:
    """Return, per tensor, the operations of each entry in a forward pass of `sample`, a batch of one.

    >>> costs(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 5)), torch.zeros(1, 1, 6, 6))
    {'0.weight': 32, '0.bias': 16, '2.weight': 2, '2.bias': 1}
    """
    counts: dict[str, int] = {}

    def note(name: str, width: int, layer: nn.Module, _: object, output: torch.Tensor) -> None:
        places = output.numel() // width
        for leaf, _ in layer.named_parameters(recurse=False):
            key = f"{name}.{leaf}" if name else leaf
            counts[key] = counts.get(key, 0) + places * (1 if leaf == "bias" else 2)

    hooks, training = [], module.training
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd):
            width = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
            hooks.append(layer.register_forward_hook(partial(note, name, width)))
    try:
        module.eval()
        with torch.no_grad():
            module(sample)
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return counts


def forward_flops(layout: Layout, by_tensor: Mapping[str, int], mask: Mask | None = None) -> int:
    """The operations of one sample's forward pass with the entries of `mask`. None means all.

    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> by_tensor = {"weight": 2, "bias": 1}
    >>> forward_flops(layout, by_tensor), forward_flops(layout, by_tensor, torch.arange(8).numpy() < 4)
    (14, 8)
    """
    held = [t for t in layout.tensors if t.name in by_tensor]
    return sum(by_tensor[t.name] * (t.size if mask is None else int(np.count_nonzero(mask[t.slice]))) for t in held)
