"""A model is a vector: `Layout` says where each tensor of a module stands in one flat float32 array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sparsona.errors import InputError
from sparsona.message import Vector

if TYPE_CHECKING:
    import torch
    from torch import nn

FLOAT32 = "torch.float32"


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

    >>> from torch import nn
    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> [(t.name, t.shape, t.start) for t in layout.tensors], layout.size
    ([('weight', (2, 3), 0), ('bias', (2,), 6)], 8)
    """

    tensors: tuple[Tensor, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        tensors: list[Tensor] = []
        start = 0
        for name, tensor, buffer in tensors_of(module):
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


def tensors_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Name, tensor and whether it is a buffer: first the parameters, then the float buffers."""
    for name, parameter in module.named_parameters():
        if str(parameter.dtype) != FLOAT32:
            raise InputError(f"weight {name!r} is {parameter.dtype}; Sparsona trains float32: call module.float()")
        yield name, parameter, False
    for name, buffer in module.named_buffers():
        if str(buffer.dtype) == FLOAT32:
            yield name, buffer, True
