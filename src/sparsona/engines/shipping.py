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

SetupArrays: TypeAlias = tuple[Array, ...]
"""Inputs, targets, the indices of all clients' samples, the bounds of each client's indices, the bytes of each tensor
of the model's base, and the rest, pickled. All workers of a machine share the memory of all but the last."""


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
    payload = _pickled(replace(setup, federation=Federation(bare)), tuple(shares))
    base = (raw_bytes(tensor) for _, tensor in base_of(setup.module))
    return data.inputs, data.targets, indices, bounds.astype(np.int64), *base, np.frombuffer(payload, np.uint8)


def setup_of(arrays: SetupArrays) -> Setup:
    """Return the set-up, in a worker, with the samples and shares put back."""
    inputs, targets, indices, bounds, *base, payload = arrays
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
class BaseTensor:
    """A tensor of the base: its number there, and its type."""

    number: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    parameter: bool


class _Pickler(pickle.Pickler):
    """Writes each weight by itself, although weights share a buffer; of a base tensor it writes the number."""

    def __init__(self, file: io.BytesIO, module: nn.Module) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._base = {id(tensor): (number, tensor) for number, (_, tensor) in enumerate(base_of(module))}

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor) or id(obj) not in self._base:
            return None
        number, tensor = self._base[id(obj)]
        return BaseTensor(number, tensor.dtype, tuple(tensor.shape), isinstance(tensor, nn.Parameter))

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, nn.Parameter):
            return nn.Parameter, (obj.detach().clone(), obj.requires_grad)
        if isinstance(obj, torch.Tensor):
            return torch.Tensor.__reduce_ex__(obj.detach().clone(), 5)  # type: ignore[no-untyped-call]
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Reads the output of :class:`_Pickler`. A tensor of the base that several layers share stays one."""

    def __init__(self, payload: Array, base: list[Array]) -> None:
        super().__init__(io.BytesIO(payload.data))
        self._base, self._found = base, dict[BaseTensor, torch.Tensor]()

    def persistent_load(self, pid: Any) -> torch.Tensor:
        if pid not in self._found:
            tensor = view_of(self._base[pid.number]).view(pid.dtype).reshape(pid.shape)
            self._found[pid] = nn.Parameter(tensor, requires_grad=False) if pid.parameter else tensor
        return self._found[pid]


def _pickled(setup: Setup, names: tuple[str, ...]) -> bytes:
    out = io.BytesIO()
    try:
        _Pickler(out, setup.module).dump((setup, names))
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        problem = one_line(error)
        raise InputError(
            f"a model, method or objective cannot be sent to worker processes ({problem}): "
            "define it at the top of a module, or choose --engine inprocess"
        ) from None
    return out.getvalue()


def picklable(setup: Setup) -> bool:
    """True if worker processes can load this set-up without importing the user's script a second time."""
    nothing = np.zeros(0, np.float32)
    data = replace(setup.federation.data, inputs=nothing, targets=nothing, groups=None)
    try:
        return b"__main__" not in _pickled(replace(setup, federation=Federation(data)), ())
    except InputError:
        return False
