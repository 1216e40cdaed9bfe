"""The base of a model: the frozen weights, held once per process and known by their hash."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sparsona.layout import base_of


def base_hash(module: nn.Module) -> str:
    """The sha256 of the module's base by name, type, shape and content; empty if nothing is frozen.

    Buffers that no state dict holds are left out: the architecture decides them.

    >>> base_hash(nn.Linear(2, 1))
    ''
    """
    known, found = module.state_dict(keep_vars=True), hashlib.sha256()
    names = {name: tensor for name, tensor in base_of(module) if name in known}
    for name, tensor in sorted(names.items()):
        found.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        found.update(raw_bytes(tensor).data)
    return found.hexdigest() if names else ""


def copied(module: nn.Module) -> nn.Module:
    """A copy of the module that shares the memory of its base.

    >>> net = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1))
    >>> other = copied(net)
    >>> [a.data_ptr() == b.data_ptr() for a, b in zip(net.parameters(), other.parameters())]
    [True, True, False, False]
    """
    return copy.deepcopy(module, {id(tensor): _view(tensor) for _, tensor in base_of(module)})


def raw_bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """The content of a tensor of any type as bytes, without a copy where it is contiguous and on the CPU."""
    found: npt.NDArray[np.uint8] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return found


def still_layers(module: nn.Module) -> Iterator[nn.Module]:
    """The normalisation layers whose statistics are part of the base. They must stay in evaluation mode."""
    owners = {name.rpartition(".")[0] for name, _ in base_of(module)}
    for name, layer in module.named_modules():
        if name in owners and isinstance(layer, nn.modules.batchnorm._NormBase):
            yield layer


def _view(tensor: torch.Tensor) -> Any:
    """The same memory as a tensor of its own: moving the copy to another device leaves the original there."""
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(tensor.detach(), requires_grad=False)
    return tensor.detach()
