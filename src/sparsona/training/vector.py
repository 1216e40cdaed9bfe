"""A module whose weights and gradients are views of two flat buffers."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import Layout, tensors_of
from sparsona.message import Vector


def view_of(array: npt.NDArray[Any]) -> torch.Tensor:
    """The array as a tensor to read from, without a copy.

    Torch has no read-only tensors, and warns of read-only arrays; the caller must not write.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def tensor_of(values: npt.NDArray[Any], device: torch.device | str) -> torch.Tensor:
    """Values as a float32 tensor to read from, on the device."""
    return view_of(np.ascontiguousarray(values, np.float32)).to(device)


class Flat:
    """A module whose weights and gradients are views of two flat buffers, so that a step is one axpy.

    The buffer of the gradients is made when it is first used.

    >>> flat = Flat(nn.Linear(2, 1))
    >>> flat.load(np.array([1, 2, 3], np.float32))
    >>> flat.module.bias
    Parameter containing:
    tensor([3.], requires_grad=True)
    """

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        self.module = module.to(device)
        self.layout = Layout.of(module)
        self.weights = torch.empty(self.layout.size, device=device)
        owners = dict(module.named_modules())
        for (name, tensor, buffer), place in zip(list(tensors_of(module)), self.layout.tensors, strict=True):
            view = self.weights[place.slice].view(place.shape)
            with torch.no_grad():
                view.copy_(tensor)
            if buffer:
                owner, _, leaf = name.rpartition(".")
                owners[owner]._buffers[leaf] = view
            else:
                tensor.data, tensor.grad = view, None

    @cached_property
    def gradient(self) -> torch.Tensor:
        out = torch.zeros(self.layout.trainable, device=self.weights.device)
        for parameter, place in zip(self.module.parameters(), self.layout.parameters, strict=True):
            parameter.grad = out[place.slice].view(place.shape)
        return out

    def load(self, vector: Vector) -> None:
        if vector.shape != (self.layout.size,):
            raise InputError(f"a vector of length {len(vector)} does not fit a model of {self.layout.size} numbers")
        with torch.no_grad():
            self.weights.copy_(view_of(np.ascontiguousarray(vector, np.float32)))

    def read(self) -> Vector:
        """A copy of the weights."""
        out: Vector = self.weights.detach().cpu().numpy().copy()
        return out
