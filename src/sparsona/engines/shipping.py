"""A set-up as arrays, for workers that share memory: the samples, the clients' shares, and all the rest as bytes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from sparsona.data.dataset import Array, ClientSplit, Federation, Indices
from sparsona.errors import InputError, one_line
from sparsona.federation.setup import Setup

SetupArrays: TypeAlias = tuple[Array, Array, Indices, Indices, Array]
"""Inputs, targets, the indices of all clients' samples, where each client's begin and end, and the rest, pickled."""


class SplitTable(Mapping[str, ClientSplit]):
    """Which client has which samples, in two arrays, however many clients there are."""

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
    """The set-up as arrays."""
    data, shares = setup.federation.data, setup.federation.splits
    parts = [part for share in shares.values() for part in (share.train, share.validation, share.test)]
    indices = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    ends = np.cumsum([len(part) for part in parts]).reshape(-1, 3)
    bounds = np.column_stack([np.concatenate([[0], ends[:-1, 2]]), ends]) if parts else np.zeros((0, 4), np.int64)
    nothing = np.zeros((0, *data.inputs.shape[1:]), data.inputs.dtype)
    bare = replace(data, inputs=nothing, targets=data.targets[:0], groups=None)
    payload = _pickled(replace(setup, federation=Federation(bare)), tuple(shares))
    return data.inputs, data.targets, indices, bounds.astype(np.int64), np.frombuffer(payload, np.uint8)


def setup_of(arrays: SetupArrays) -> Setup:
    """In a worker: the set-up with the samples and shares put back."""
    inputs, targets, indices, bounds, payload = arrays
    setup: Setup
    try:
        setup, names = ForkingPickler.loads(payload.data)
    except (AttributeError, ImportError) as error:
        raise InputError(
            f"a worker process cannot find the model, method or objective ({error}): "
            "put it into a module that can be imported, or choose --engine inprocess"
        ) from None
    data = replace(setup.federation.data, inputs=inputs, targets=targets)
    return replace(setup, federation=Federation(data, SplitTable(names, bounds, indices)))


class _Pickler(pickle.Pickler):
    """Writes each weight by itself: a module's weights are views of one buffer, which would go with every one."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, nn.Parameter):
            return nn.Parameter, (obj.detach().clone(), obj.requires_grad)
        if isinstance(obj, torch.Tensor):
            return torch.Tensor.__reduce_ex__(obj.detach().clone(), 5)  # type: ignore[no-untyped-call]
        return NotImplemented


def _pickled(setup: Setup, names: tuple[str, ...]) -> bytes:
    out = io.BytesIO()
    try:
        _Pickler(out, pickle.HIGHEST_PROTOCOL).dump((setup, names))
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        problem = one_line(error)
        raise InputError(
            f"a model, method or objective cannot be sent to worker processes ({problem}): "
            "define it at the top of a module, or choose --engine inprocess"
        ) from None
    return out.getvalue()


def picklable(setup: Setup) -> bool:
    """Whether worker processes can have this set-up without importing the user's script a second time."""
    data = replace(setup.federation.data, inputs=_NONE, targets=_NONE, groups=None)
    try:
        return b"__main__" not in _pickled(replace(setup, federation=Federation(data)), ())
    except InputError:
        return False


_NONE = np.zeros(0, np.float32)
