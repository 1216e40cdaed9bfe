"""A model is a vector: `Layout` says where each tensor of a module stands in one flat float32 array."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sparsona.errors import InputError
from sparsona.message import Vector


@dataclass(frozen=True)
class Tensor:
    """One named tensor of a module and its place ``start:stop`` in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    buffer: bool = False

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Layout:
    """The tensors of a module in order: first the parameters, then the float buffers (BatchNorm's statistics).

    Buffers travel and are averaged with the weights, but have no gradient: `trainable` is where they begin. Integer
    buffers stay on the client.

    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> [(t.name, t.shape, t.start) for t in layout.tensors], layout.size
    ([('weight', (2, 3), 0), ('bias', (2,), 6)], 8)
    """

    tensors: tuple[Tensor, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        tensors: list[Tensor] = []
        start = 0
        for name, tensor, buffer in _tensors(module):
            stop = start + tensor.numel()
            tensors.append(Tensor(name, tuple(tensor.shape), start, stop, buffer))
            start = stop
        if not any(not t.buffer for t in tensors):
            raise InputError("the model has no parameters: nothing can be trained")
        return cls(tuple(tensors))

    @cached_property
    def size(self) -> int:
        return self.tensors[-1].stop

    @cached_property
    def trainable(self) -> int:
        return max(t.stop for t in self.tensors if not t.buffer)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        return tuple(t.size for t in self.tensors)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if not t.buffer)

    def __getitem__(self, name: str) -> Tensor:
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def view(self, vector: Vector, name: str) -> Vector:
        """The tensor called `name` in its own shape, sharing memory with `vector`."""
        tensor = self[name]
        return vector[tensor.slice].reshape(tensor.shape)

    def split(self, vector: Vector) -> Iterator[tuple[Tensor, Vector]]:
        """Every tensor with its flat part of `vector`, without copies."""
        return ((tensor, vector[tensor.slice]) for tensor in self.tensors)

    def named(self, vector: Vector) -> dict[str, Vector]:
        """The vector as a state dict of arrays, in the module's names and shapes."""
        return {t.name: vector[t.slice].reshape(t.shape) for t in self.tensors}

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The modules that own parameters, in order: ``("conv1", "conv2", "fc")``; the last one is the head."""
        return tuple(dict.fromkeys(t.name.rpartition(".")[0] for t in self.parameters))


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise InputError(f"weight {name!r} is {parameter.dtype}; Sparsona trains float32: call module.float()")
        yield name, parameter, False
    for name, buffer in module.named_buffers():
        if buffer.dtype == torch.float32:
            yield name, buffer, True


def view_of(array: npt.NDArray[Any]) -> torch.Tensor:
    """The array as a tensor to read from, without a copy: torch has no tensors that cannot be written to, and warns of
    arrays that cannot."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


class Flat:
    """A module whose weights and gradients are views of two flat buffers, so that a step is one axpy. The buffer of
    the gradients is made when it is first asked for.

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
        for (name, tensor, buffer), place in zip(list(_tensors(module)), self.layout.tensors, strict=True):
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
