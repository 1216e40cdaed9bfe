"""A set-up as arrays, for workers that share memory: the samples, the clients' shares, and the rest as bytes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from sparsona.base import raw_bytes
from sparsona.data.dataset import Array, ClientSplit, Federation, Indices
from sparsona.errors import InputError, one_line
from sparsona.federation.setup import Setup
from sparsona.layout import base_of
from sparsona.training.vector import view_of

SetupArrays: TypeAlias = tuple[Array, Array, Indices, Indices, Array, Array]
"""Inputs, targets, the indices of all clients' samples, the bounds of each client's indices, the bytes of the model's
base, and the rest, pickled. All workers of a machine share the memory of all but the last."""

ALIGN = 64


class SplitTable(Mapping[str, ClientSplit]):
    """The samples of each client, in two arrays for any number of clients."""

    def __init__(self, names: tuple[str, ...], bounds: Indices, indices: Indices) -> None:
        self._rows = {name: row for row, name in enumerate(names)}
        self._bounds = bounds
        self._indices = indices

    def __getitem__(self, name: str) -> ClientSplit:
        train, validation, test, end = self._bounds[self._rows[name]]
        own = self._indices
        return ClientSplit(name, own[train:validation], own[validation:test], own[test:end])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def setup_arrays(setup: Setup) -> SetupArrays:
    """Return the set-up as arrays."""
    data, shares = setup.federation.data, setup.federation.splits
    parts = [part for share in shares.values() for part in (share.train, share.validation, share.test)]
    indices = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    ends = np.cumsum([len(part) for part in parts]).reshape(-1, 3)
    bounds = np.column_stack([np.concatenate([[0], ends[:-1, 2]]), ends]) if parts else np.zeros((0, 4), np.int64)
    nothing = np.zeros((0, *data.inputs.shape[1:]), data.inputs.dtype)
    bare = replace(data, inputs=nothing, targets=data.targets[:0], groups=None)
    base = Base.of(setup.module)
    payload = _pickled(replace(setup, federation=Federation(bare)), tuple(shares), base)
    rest = np.frombuffer(payload, np.uint8)
    return data.inputs, data.targets, indices, bounds.astype(np.int64), base.joined(), rest


def setup_of(arrays: SetupArrays) -> Setup:
    """Return the set-up, in a worker, with the samples and shares put back."""
    inputs, targets, indices, bounds, base, payload = arrays
    setup: Setup
    try:
        setup, names = _Unpickler(payload, base).load()
    except (AttributeError, ImportError) as error:
        raise InputError(
            f"a worker process cannot find the model, method or objective ({error}): "
            "put it into a module that can be imported (in a notebook, begin its cell with %%writefile mine.py and "
            "import mine), or choose --engine inprocess"
        ) from None
    data = replace(setup.federation.data, inputs=inputs, targets=targets)
    return replace(setup, federation=Federation(data, SplitTable(names, bounds, indices)))


@dataclass(frozen=True)
class Place:
    """The place of a tensor of the base among the bytes, and its type."""

    start: int
    stop: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    parameter: bool

    def tensor(self, base: Array) -> torch.Tensor:
        """Return the tensor as a view of the base's bytes."""
        found = view_of(base[self.start : self.stop]).view(self.dtype).reshape(self.shape)
        return nn.Parameter(found, requires_grad=False) if self.parameter else found


@dataclass(frozen=True)
class Base:
    """The tensors of a model's base, and the place of each by its id."""

    tensors: tuple[torch.Tensor, ...]
    places: Mapping[int, Place]

    @classmethod
    def of(cls, module: nn.Module) -> Base:
        """Find the base of a module."""
        tensors, places, start = tuple(tensor for _, tensor in base_of(module)), dict[int, Place](), 0
        for tensor in tensors:
            stop = start + tensor.numel() * tensor.element_size()
            places[id(tensor)] = Place(start, stop, tensor.dtype, tuple(tensor.shape), isinstance(tensor, nn.Parameter))
            start = -(-stop // ALIGN) * ALIGN
        return cls(tensors, places)

    def joined(self) -> Array:
        """Return the bytes of all tensors."""
        out = np.zeros(max((place.stop for place in self.places.values()), default=0), np.uint8)
        for tensor in self.tensors:
            place = self.places[id(tensor)]
            out[place.start : place.stop] = raw_bytes(tensor)
        return out


class _Pickler(pickle.Pickler):
    """Writes each weight separately: a module's weights are views of one buffer, which would be written each time.

    For a tensor of the base it writes the place.
    """

    def __init__(self, file: io.BytesIO, base: Base) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._places = base.places

    def persistent_id(self, obj: Any) -> Any:
        return self._places.get(id(obj)) if isinstance(obj, torch.Tensor) else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, nn.Parameter):
            return nn.Parameter, (obj.detach().clone(), obj.requires_grad)
        if isinstance(obj, torch.Tensor):
            return torch.Tensor.__reduce_ex__(obj.detach().clone(), 5)  # type: ignore[no-untyped-call]
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Reads the output of :class:`_Pickler`. A tensor of the base that several layers share stays one."""

    def __init__(self, payload: Array, base: Array) -> None:
        super().__init__(io.BytesIO(payload.data))
        self._base, self._found = base, dict[Place, torch.Tensor]()

    def persistent_load(self, pid: Any) -> torch.Tensor:
        return self._found.setdefault(pid, pid.tensor(self._base))


def _pickled(setup: Setup, names: tuple[str, ...], base: Base) -> bytes:
    out = io.BytesIO()
    try:
        _Pickler(out, base).dump((setup, names))
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        problem = one_line(error)
        raise InputError(
            f"a model, method or objective cannot be sent to worker processes ({problem}): "
            "define it at the top of a module, or choose --engine inprocess"
        ) from None
    return out.getvalue()


def picklable(setup: Setup) -> bool:
    """True if worker processes can load this set-up without importing the user's script a second time."""
    data = replace(setup.federation.data, inputs=_NONE, targets=_NONE, groups=None)
    try:
        return b"__main__" not in _pickled(replace(setup, federation=Federation(data)), (), Base.of(setup.module))
    except InputError:
        return False


_NONE = np.zeros(0, np.float32)
