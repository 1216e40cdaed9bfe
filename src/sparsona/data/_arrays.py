"""Arrays and torch Datasets as tables: the columns of two-dimensional inputs are called x0, x1, ..."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from sparsona.data.dataset import Array
from sparsona.data.schema.table import Table
from sparsona.errors import DataError

Pair = tuple[Any, Any]
"""Inputs and targets: numpy arrays, torch tensors, or lists of numbers."""


def from_pairs(train: Pair, test: Pair | None, owner: str, where: str, called: Sequence[str] = ()) -> Table:
    """A table of the training pair and, at its end, the test pair. `called` names the columns of the inputs.

    >>> from_pairs(([[0.5, 1.0]], [3]), None, "a", "client 'a'").columns
    {'x0': array([0.5]), 'x1': array([1.]), 'y': array([3])}
    """
    x, y = checked_pair(train, where)
    rows = 0
    if test is not None:
        x_test, y_test = checked_pair(test, f"{where} (test)")
        rows = len(y_test)
        for one, other, what in ((x, x_test, "inputs"), (y, y_test, "targets")):
            if one.shape[1:] != other.shape[1:]:
                raise DataError(
                    f"{where}: {what} have shape {one.shape[1:]}, those of the test part {other.shape[1:]}; "
                    "give all the same shape"
                )
        x, y = np.concatenate([x, x_test]), np.concatenate([y, y_test])
    columns: dict[str, Array] = {}
    table = x.ndim == 2
    if table:
        if called and len(called) != x.shape[1]:
            raise DataError(f"{where}: {len(called)} names of columns for {x.shape[1]} columns; give one each")
        names = called or [f"x{k}" for k in range(x.shape[1])]
        columns = {str(name): x[:, k] for k, name in enumerate(names)}
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    several = [y] if y.ndim == 1 else [y[:, k] for k in range(y.shape[1])]
    targets = {"y" if y.ndim == 1 else f"y{k}": one for k, one in enumerate(several)}
    raw = frozenset(name for name, one in targets.items() if one.dtype.kind in "US")
    targets |= {name: targets[name].astype(np.str_) for name in raw}
    return Table(owner, where, columns | targets, None if table else x, rows, target=tuple(targets), raw=raw)


def as_array(values: Any, what: str) -> Array:
    """The values as an array; `what` they are stands in the error if they cannot be one."""
    if isinstance(values, torch.Tensor):
        return np.asarray(values.detach().cpu())
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{what}: samples differ in shape; give all the same shape") from error
    if array.dtype.kind not in "biufUS":
        raise DataError(f"{what}: values of type {array.dtype} cannot be used; give numbers")
    return array


def checked_pair(given: Any, who: str) -> tuple[Array, Array]:
    """A client's inputs and targets as arrays; one sample each, or an error that names `who` gave them."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise DataError(f"{who}: give a pair of inputs and targets")
    x, y = as_array(given[0], f"{who}, inputs"), as_array(given[1], f"{who}, targets")
    if x.ndim < 2 or y.ndim not in (1, 2):
        problem = f"inputs have shape {x.shape} and targets {y.shape}"
        raise DataError(f"{who}: {problem}; give (samples, features...) and (samples,)")
    if len(x) != len(y):
        raise DataError(f"{who}: {len(x)} inputs and {len(y)} targets; give one target an input")
    if len(x) == 0:
        raise DataError(f"{who}: no samples; leave it out")
    if x.dtype.kind in "US":
        raise DataError(f"{who}: inputs are text; give numbers, or a table with named columns (a DataFrame, csv)")
    return x, y


def read_torch(data: torch.utils.data.Dataset[Any], who: str) -> tuple[Array, Array]:
    """All samples of a torch Dataset, at once where it is made of tensors."""
    if isinstance(data, torch.utils.data.TensorDataset):
        return checked_pair(data.tensors, who)
    samples: Iterable[Any]
    if isinstance(data, torch.utils.data.IterableDataset):
        samples = data
    else:
        samples = (data[k] for k in range(len(data)))  # type: ignore[arg-type]
    xs, ys = [], []
    for sample in samples:
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise DataError(f"{who}: a sample is not a pair; let the torch Dataset give (input, target)")
        xs.append(as_array(sample[0], f"{who}, inputs"))
        ys.append(as_array(sample[1], f"{who}, targets"))
    for arrays in (xs, ys):
        odd = next((array.shape for array in arrays if array.shape != arrays[0].shape), None)
        if odd is not None:
            raise DataError(f"{who}: samples have shapes {arrays[0].shape} and {odd}; give all the same shape")
    return checked_pair((np.array(xs), np.array(ys)), who)
