"""A module whose weights and gradients are views of two flat buffers, and the inputs of its last trained layer."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sparsona.base import still_layers
from sparsona.errors import InputError
from sparsona.layout import Layout, buffers_of, parameters_of
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


FlatPart: TypeAlias = Literal["weights", "buffers", "all"]


class FlatModule:
    """A module whose trained weights and their gradients are views of two flat buffers, so that a step is one axpy.

    The buffer of the gradients is made when it is first used. The base stays where it is.

    >>> flat = FlatModule(nn.Linear(2, 1))
    >>> flat.load(np.array([1, 2, 3], np.float32))
    >>> flat.module.bias
    Parameter containing:
    tensor([3.], requires_grad=True)
    """

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        self.module = module.to(device)
        self.layout = Layout.of(module)
        self.buffer_layout = Layout.of_buffers(module)
        size = self.layout.size
        whole = torch.empty(size + self.buffer_layout.size, device=device)
        self.weights, self.buffers = whole[:size], whole[size:]
        self.all = whole
        for (_, parameter), place in zip(list(parameters_of(module)), self.layout.tensors, strict=True):
            parameter.data, parameter.grad = _moved(parameter, self.weights[place.slice].view(place.shape)), None
        owners = dict(module.named_modules())
        for (name, buffer), place in zip(list(buffers_of(module)), self.buffer_layout.tensors, strict=True):
            owner, _, leaf = name.rpartition(".")
            owners[owner]._buffers[leaf] = _moved(buffer, self.buffers[place.slice].view(place.shape))

        self._still = list(still_layers(module))

    def train(self) -> None:
        """Put the module into training mode, but for normalisation layers of the base: their statistics stay."""
        self.module.train()
        for layer in self._still:
            layer.training = False

    @cached_property
    def gradient(self) -> torch.Tensor:
        """The gradient of all trained parameters as one vector: torch writes into it."""
        out = torch.zeros(self.layout.size, device=self.weights.device)
        for (_, parameter), place in zip(parameters_of(self.module), self.layout.tensors, strict=True):
            parameter.grad = out[place.slice].view(place.shape)
        return out

    def load(self, vector: Vector, part: FlatPart = "weights") -> None:
        """Load the parameters, the float buffers, or both, concatenated."""
        into: torch.Tensor = getattr(self, part)
        if vector.shape != into.shape:
            raise InputError(f"a vector of length {len(vector)} does not fit a model of {len(into)} numbers")
        with torch.no_grad():
            into.copy_(view_of(np.ascontiguousarray(vector, np.float32)))

    def read(self, part: FlatPart = "weights") -> Vector:
        """Return a copy of the parameters, the float buffers, or both, concatenated."""
        values: Vector = getattr(self, part).detach().cpu().numpy().copy()
        return values


def _moved(tensor: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return view.copy_(tensor)


class LastInput:
    """Records the inputs of a module's last trained layer in each forward pass of a block.

    >>> net = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> with LastInput(net, Layout.of(net)) as last:
    ...     outputs = net(torch.zeros(4, 3))
    ...     last.embeddings().shape
    torch.Size([4, 2])
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self._name = layout.layers[-1]
        self._layer = module.get_submodule(self._name)
        self._found: torch.Tensor | None = None

    def __enter__(self) -> LastInput:
        self._hook = self._layer.register_forward_pre_hook(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _note(self, _: nn.Module, inputs: tuple[object, ...]) -> None:
        self._found = inputs[0] if inputs and isinstance(inputs[0], torch.Tensor) else None

    def embeddings(self) -> torch.Tensor:
        """The embeddings of the newest batch, one flat row per input."""
        found, self._found = self._found, None
        if found is None:
            raise InputError(f"the model has no embeddings: its forward must call its last layer {self._name!r}")
        return found.flatten(1)
