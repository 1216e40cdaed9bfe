"""A model is a vector of its trainable parameters: `Layout` maps each tensor into one flat float32 array.

Frozen parameters (``requires_grad=False``) are the *base*, which is in no vector and is named by its hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol

from sparsona.errors import InputError
from sparsona.message import Vector

if TYPE_CHECKING:
    import torch
    from torch import nn

FLOAT32 = "torch.float32"


class Forward(Protocol):
    """The task's module in evaluation mode, called with weights and a batch of prepared inputs."""

    def __call__(self, weights: Vector, inputs: torch.Tensor, /) -> torch.Tensor:
        """Return the outputs for a batch."""

    def embed(self, weights: Vector, inputs: torch.Tensor, /) -> torch.Tensor:
        """Return the embeddings of a batch: the inputs of the last trained layer, one flat row per sample."""


@dataclass(frozen=True)
class Tensor:
    """One named tensor of a module and its place ``start:stop`` in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def slice(self) -> slice:
        """Return the tensor's place as a slice."""
        return slice(self.start, self.stop)

    @property
    def size(self) -> int:
        """Return the number of entries."""
        return self.stop - self.start


@dataclass(frozen=True)
class Layout:
    """The trainable parameters of a module in order, as parts of one vector.

    Buffers (BatchNorm's statistics) have their own vector, see :meth:`of_buffers`. Frozen parameters and their buffers
    are in neither. A shared parameter is here once, under its first name.

    >>> from torch import nn
    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> [(t.name, t.shape, t.start) for t in layout.tensors], layout.size
    ([('weight', (2, 3), 0), ('bias', (2,), 6)], 8)
    """

    tensors: tuple[Tensor, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """Return the layout of a module's trainable parameters."""
        layout = cls(_places(parameters_of(module)))
        if not layout.tensors:
            frozen = any(True for _ in module.parameters())
            fix = "all are frozen; set requires_grad on some, or name them with trainable=" if frozen else "it has none"
            raise InputError(f"the model has no parameters that can be trained: {fix}")
        return layout

    @classmethod
    def of_buffers(cls, module: nn.Module) -> Layout:
        """Return the layout of the trained part's float buffers, without integer buffers (a count of batches)."""
        return cls(_places(buffers_of(module)))

    @cached_property
    def size(self) -> int:
        """Return the length of the vector."""
        return self.tensors[-1].stop if self.tensors else 0

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Return the lengths of the tensors."""
        return tuple(t.size for t in self.tensors)

    def __getitem__(self, name: str) -> Tensor:
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def split(self, vector: Vector) -> Iterator[tuple[Tensor, Vector]]:
        """Yield every tensor with its flat part of `vector`, without copies."""
        return ((tensor, vector[tensor.slice]) for tensor in self.tensors)

    def named(self, vector: Vector) -> dict[str, Vector]:
        """Return the vector as a state dict of arrays, in the module's names and shapes."""
        return {t.name: vector[t.slice].reshape(t.shape) for t in self.tensors}

    def spans(self, scope: Literal["tensor", "model"]) -> list[slice]:
        """Return the spans of a scope: one per tensor, or one for the whole model."""
        return [t.slice for t in self.tensors] if scope == "tensor" else [slice(0, self.size)]

    @cached_property
    def width(self) -> int:
        """Return the length of an embedding, the number of inputs of a linear last layer."""
        first = next(t for t in self.tensors if t.name.rpartition(".")[0] == self.layers[-1])
        return first.size // first.shape[0]

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Return the modules with parameters, in order: ``("conv1", "conv2", "fc")``; the last one is the head."""
        return tuple(dict.fromkeys(t.name.rpartition(".")[0] for t in self.tensors))


def parameters_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Return the module's trainable parameters by name; raises an error if one is not float32."""
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        if str(parameter.dtype) != FLOAT32:
            raise InputError(
                f"weight {name!r} is {parameter.dtype}; Sparsona trains float32: call module.float(), or freeze it"
            )
        yield name, parameter


def buffers_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Return the float32 buffers of the module's trained part by name."""
    frozen = _frozen_owners(module)
    for name, buffer in module.named_buffers():
        if str(buffer.dtype) == FLOAT32 and name.rpartition(".")[0] not in frozen:
            yield name, buffer


def base_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Return the module's base by name: frozen parameters and their buffers.

    >>> from torch import nn
    >>> [name for name, _ in base_of(nn.Sequential(nn.BatchNorm1d(2).requires_grad_(False), nn.Linear(2, 1)))]
    ['0.weight', '0.bias', '0.running_mean', '0.running_var', '0.num_batches_tracked']
    """
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            yield name, parameter
    frozen = _frozen_owners(module)
    for name, buffer in module.named_buffers():
        if name.rpartition(".")[0] in frozen:
            yield name, buffer


def _frozen_owners(module: nn.Module) -> set[str]:
    """Return the names of the modules with a frozen parameter, whose buffers are part of the base.

    A module without parameters follows the module around it.
    """
    found: set[str] = set()
    for name, owner in module.named_modules():
        trained = [parameter.requires_grad for parameter in owner.parameters()]
        if not all(trained) or (not trained and name and name.rpartition(".")[0] in found):
            found.add(name)
    return found


def _places(named: Iterator[tuple[str, torch.Tensor]]) -> tuple[Tensor, ...]:
    tensors: list[Tensor] = []
    for name, tensor in named:
        start = tensors[-1].stop if tensors else 0
        tensors.append(Tensor(name, tuple(tensor.shape), start, start + tensor.numel()))
    return tuple(tensors)
