"""Samples of several inputs: token ids and a mask, an image and a row of numbers.

All inputs of a sample stand in one row of bytes, so that everything that moves samples moves one array. The net gets
them apart again, by keyword or by place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from sparsona.data._arrays import IDS, MASK, as_array, is_ragged, plain_array
from sparsona.data.dataset import Array, Field
from sparsona.errors import DataError

KINDS = {"b": "uint8", "u": "int32", "i": "int32", "f": "float32"}
"""The type that values of each kind are stored as. The net gets int32 as int64."""


def fields_of(clients: Sequence[Mapping[str, Any]], where: Sequence[str]) -> tuple[Field, ...]:
    """The fields that hold the inputs of all clients."""
    out = []
    for other, place in zip(clients, where, strict=True):
        odd = set(other) ^ set(clients[0])
        if odd:
            raise DataError(f"{place}: input {min(odd)!r} is in only some of the clients' samples; give all the same")
    for name in clients[0]:
        parts = [one[name] for one in clients]
        if any(map(is_ragged, parts)) or len({len(part[0]) if np.ndim(part[0]) else 0 for part in parts}) > 1:
            kind = {plain_array(one).dtype.kind for part in parts for one in part[:1]}
            longest = max(len(one) for part in parts for one in part)
            out.append(Field(name, KINDS["f" if "f" in kind else "i"], (longest,), True))
            continue
        arrays = [as_array(part, f"{place}, input {name!r}") for part, place in zip(parts, where, strict=True)]
        shapes = {array.shape[1:] for array in arrays}
        if len(shapes) > 1:
            raise DataError(f"input {name!r} has samples of shapes {' and '.join(map(str, sorted(shapes)[:2]))}")
        raw = all(array.dtype == np.uint8 for array in arrays)
        kinds = "".join(sorted({array.dtype.kind for array in arrays}))
        stored = "uint8" if raw else KINDS["f" if "f" in kinds else kinds[0]]
        out.append(Field(name, stored, tuple(map(int, arrays[0].shape[1:]))))
    return tuple(out)


def packed(inputs: Mapping[str, Any], fields: Sequence[Field], where: str) -> Array:
    """The inputs of all samples as rows of bytes."""
    if IDS in inputs and MASK not in inputs and any(field.name == MASK for field in fields):
        inputs = {**inputs, MASK: [np.ones(len(one), np.int32) for one in inputs[IDS]]}
    if set(inputs) != {field.name for field in fields}:
        wanted = ", ".join(field.name for field in fields)
        raise DataError(f"{where} has the inputs {', '.join(inputs)}; the model takes {wanted}")
    rows, parts = len(inputs[fields[0].name]), []
    for field in fields:
        values, place = inputs[field.name], f"{where}, input {field.name!r}"
        if len(values) != rows:
            raise DataError(f"{place} has {len(values)} samples, {fields[0].name!r} has {rows}; give all the same")
        if not field.lengths:
            array = as_array(values, place)
            if array.shape[1:] != field.shape:
                raise DataError(f"{place} has samples of shape {array.shape[1:]}; the model takes {field.shape}")
            parts.append(_bytes(array.astype(field.dtype)))
            continue
        array, lengths = np.zeros((rows, *field.shape), field.dtype), np.zeros((rows, 1), np.int32)
        for row, one in enumerate(values):
            if len(one) > field.shape[0]:
                raise DataError(f"{place}: sample {row} has length {len(one)}; shorten it to {field.shape[0]}")
            array[row, : len(one)], lengths[row] = plain_array(one), len(one)
        parts += [_bytes(array), _bytes(lengths)]
    return np.concatenate(parts, axis=1)


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8).reshape(len(array), -1)


@dataclass(frozen=True)
class Unpack:
    """A hook before a net's forward pass that takes rows of bytes apart. Lists are cut to the batch's longest."""

    fields: tuple[Field, ...]

    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if len(args) != 1 or args[0].dtype != torch.uint8:
            return args, kwargs
        found, start = {}, 0
        for field in self.fields:
            stop = start + field.size - 4 * field.lengths
            values = args[0][:, start:stop].contiguous().view(getattr(torch, field.dtype)).reshape(-1, *field.shape)
            if field.lengths:
                values = values[:, : int(args[0][:, stop : stop + 4].contiguous().view(torch.int32).max())]
            found[field.name] = values.long() if field.dtype == "int32" else values
            start += field.size
        if self.fields[0].name == "0":
            return tuple(found.values()), kwargs
        return (), {**found, **kwargs}


def unpacking(module: nn.Module, fields: tuple[Field, ...]) -> nn.Module:
    """Let a net take rows of bytes, in place. Without fields it stays as it is."""
    if fields:
        module.register_forward_pre_hook(Unpack(fields), with_kwargs=True)
    return module


def without_unpacking(module: nn.Module) -> nn.Module:
    """The net as its author wrote it, in place: it takes its inputs apart."""
    for key in [key for key, hook in module._forward_pre_hooks.items() if isinstance(hook, Unpack)]:
        del module._forward_pre_hooks[key]
        module._forward_pre_hooks_with_kwargs.pop(key, None)
    return module
