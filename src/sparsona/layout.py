"""A model is a vector: `Layout` says where each tensor of a module stands in one flat float32 array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

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

    @property
    def slice(self) -> slice:
        """The tensor's place as a slice."""
        return slice(self.start, self.stop)

    @property
    def size(self) -> int:
        """How many entries the tensor has."""
        return self.stop - self.start


@dataclass(frozen=True)
class Layout:
    """The parameters of a module in order, as parts of one vector.

    Buffers (BatchNorm's statistics) stand in a vector of their own, see :meth:`of_buffers`.

    >>> from torch import nn
    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> [(t.name, t.shape, t.start) for t in layout.tensors], layout.size
    ([('weight', (2, 3), 0), ('bias', (2,), 6)], 8)
    """

    tensors: tuple[Tensor, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module's parameters."""
        layout = cls(_places(parameters_of(module)))
        if not layout.tensors:
            raise InputError("the model has no parameters: nothing can be trained")
        return layout

    @classmethod
    def of_buffers(cls, module: nn.Module) -> Layout:
        """The float buffers of a module. Integer buffers (a count of batches) are left out."""
        return cls(_places(buffers_of(module)))

    @cached_property
    def size(self) -> int:
        """The length of the vector."""
        return self.tensors[-1].stop if self.tensors else 0

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the tensors."""
        return tuple(t.size for t in self.tensors)

    def __getitem__(self, name: str) -> Tensor:
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def split(self, vector: Vector) -> Iterator[tuple[Tensor, Vector]]:
        """Every tensor with its flat part of `vector`, without copies."""
        return ((tensor, vector[tensor.slice]) for tensor in self.tensors)

    def named(self, vector: Vector) -> dict[str, Vector]:
        """The vector as a state dict of arrays, in the module's names and shapes."""
        return {t.name: vector[t.slice].reshape(t.shape) for t in self.tensors}

    def spans(self, scope: Literal["tensor", "model"]) -> list[slice]:
        """Where the entries stand that belong together: each tensor, or the whole model."""
        return [t.slice for t in self.tensors] if scope == "tensor" else [slice(0, self.size)]

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The modules that own parameters, in order: ``("conv1", "conv2", "fc")``; the last one is the head."""
        return tuple(dict.fromkeys(t.name.rpartition(".")[0] for t in self.tensors))


def parameters_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The module's parameters by name; an error if one is not float32."""
    for name, parameter in module.named_parameters():
        if str(parameter.dtype) != FLOAT32:
            raise InputError(f"weight {name!r} is {parameter.dtype}; Sparsona trains float32: call module.float()")
        yield name, parameter


def buffers_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The module's float32 buffers by name."""
    return ((name, buffer) for name, buffer in module.named_buffers() if str(buffer.dtype) == FLOAT32)


def _places(named: Iterator[tuple[str, torch.Tensor]]) -> tuple[Tensor, ...]:
    tensors: list[Tensor] = []
    for name, tensor in named:
        start = tensors[-1].stop if tensors else 0
        tensors.append(Tensor(name, tuple(tensor.shape), start, start + tensor.numel()))
    return tuple(tensors)
