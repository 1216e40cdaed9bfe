"""Arrays and torch Datasets as tables: the columns of two-dimensional inputs are called x0, x1, ..."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from sparsona.data.dataset import Array
from sparsona.data.schema.table import Table, check_width
from sparsona.errors import DataError, one_line

IDS, MASK = "input_ids", "attention_mask"
Pair = tuple[Any, Any]
"""Inputs and targets: numpy arrays, torch tensors, or lists of numbers."""


def is_several(inputs: Any) -> bool:
    """True for several inputs: a mapping or tuple of arrays, or lists of tokens of different lengths."""
    if isinstance(inputs, Mapping | tuple):
        return True
    return is_ragged(inputs) and all(plain_array(one).dtype.kind in "iu" for one in inputs)


def is_ragged(values: Any) -> bool:
    """True for lists or arrays of different lengths."""
    if isinstance(values, np.ndarray | torch.Tensor) or not isinstance(values, Sequence) or not len(values):
        return False
    return all(hasattr(one, "__len__") for one in values) and len({len(one) for one in values}) > 1


def by_name(inputs: Any) -> dict[str, Any]:
    """Return the inputs by keyword; positional inputs and single lists get the names 0, 1, ..."""
    if isinstance(inputs, Mapping):
        given = {str(name): values for name, values in inputs.items()}
        if IDS in given and MASK not in given and is_ragged(given[IDS]):
            given[MASK] = [np.ones(len(one), np.int32) for one in given[IDS]]
        return given
    return {str(k): values for k, values in enumerate(inputs if isinstance(inputs, tuple) else [inputs])}


def from_pairs(train: Pair, test: Pair | None, owner: str, where: str, called: Sequence[str] = ()) -> Table:
    """Return a table of the training pair and, at its end, the test pair. `called` names the columns of the inputs.

    >>> from_pairs(([[0.5, 1.0]], [3]), None, "a", "client 'a'").columns
    {'x0': array([0.5]), 'x1': array([1.]), 'y': array([3])}
    """
    if isinstance(train, tuple | list) and len(train) == 2 and is_several(train[0]):
        return _several(train, test, owner, where)
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
        if x.ndim > 2 and np.uint8 in (x.dtype, x_test.dtype) and x.dtype != x_test.dtype:
            raise DataError(
                f"{where}: inputs are {x.dtype}, those of the test part {x_test.dtype}; "
                "give all the same type, since uint8 are images of 0 to 255"
            )
        x, y = np.concatenate([x, x_test]), np.concatenate([y, y_test])
    columns: dict[str, Array] = {}
    table = x.ndim == 2
    if table:
        if called and len(called) != x.shape[1]:
            raise DataError(f"{where}: {len(called)} names of columns for {x.shape[1]} columns; give one each")
        check_width(x.shape[1], where)
        names = called or [f"x{k}" for k in range(x.shape[1])]
        columns = {str(name): x[:, k] for k, name in enumerate(names)}
    targets, raw = _targets(y)
    return Table(owner, where, columns | targets, None if table else x, rows, target=tuple(targets), raw=raw)


def _targets(y: Array) -> tuple[dict[str, Array], frozenset[str]]:
    """Return the target columns, and the names of the textual ones."""
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    several = [y] if y.ndim == 1 else [y[:, k] for k in range(y.shape[1])]
    targets = {"y" if y.ndim == 1 else f"y{k}": one for k, one in enumerate(several)}
    raw = frozenset(name for name, one in targets.items() if one.dtype.kind in "US")
    return targets | {name: targets[name].astype(np.str_) for name in raw}, raw


def _several(train: Pair, test: Pair | None, owner: str, where: str) -> Table:
    """Return a table of samples with several inputs each, or lists of different lengths."""
    (x, y), rows = (by_name(train[0]), as_array(train[1], f"{where}, targets")), 0
    if test is not None:
        x_test, y_test = by_name(test[0]), as_array(test[1], f"{where} (test), targets")
        x, y, rows = {name: [*x[name], *x_test.get(name, ())] for name in x}, np.concatenate([y, y_test]), len(y_test)
    for name, values in x.items():
        if len(values) != len(y) or not len(y):
            raise DataError(f"{where}, input {name!r}: {len(values)} samples, {len(y)} targets; give one target each")
    targets, raw = _targets(y)
    return Table(owner, where, targets, None, rows, target=tuple(targets), raw=raw, several=x)


def as_array(values: Any, what: str) -> Array:
    """Return the values as an array; errors name them by `what`."""
    try:
        array = plain_array(values)
    except ValueError as error:
        raise DataError(f"{what}: samples differ in shape; give all the same shape") from error
    if array.dtype.kind not in "biufUS":
        raise DataError(f"{what}: values of type {array.dtype} cannot be used; give numbers")
    return array


def plain_array(values: Any) -> Array:
    """Return the values as an array of any type, without gradients; bfloat16, which numpy lacks, becomes float32.

    >>> plain_array(torch.ones(2, dtype=torch.bfloat16, requires_grad=True))
    array([1., 1.], dtype=float32)
    """
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    tensor = values.detach().cpu()
    return np.asarray(tensor.float() if tensor.dtype == torch.bfloat16 else tensor)


def checked_pair(given: Any, who: str) -> tuple[Array, Array]:
    """Return a client's inputs and targets as arrays of equal length; errors name the client, `who`."""
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


def read_torch(data: torch.utils.data.Dataset[Any], who: str) -> tuple[Any, Array]:
    """Read all samples of a torch Dataset, at once if it holds tensors."""
    if isinstance(data, torch.utils.data.TensorDataset):
        return checked_pair(data.tensors, who)
    xs: list[Any] = []
    ys: list[Any] = []
    for sample in _samples(data, who):
        x, y = _pair(sample, who)
        xs.append(x if isinstance(x, Mapping | tuple) else as_array(x, f"{who}, inputs"))
        ys.append(as_array(y, f"{who}, targets"))
    if xs and isinstance(xs[0], Mapping | tuple):
        names = list(xs[0]) if isinstance(xs[0], Mapping) else range(len(xs[0]))
        several = [[as_array(x[name], f"{who}, input {name!r}") for x in xs] for name in names]
        listed: list[Any] = [np.array(one) if len({part.shape for part in one}) == 1 else one for one in several]
        return dict(zip(names, listed, strict=True)) if isinstance(xs[0], Mapping) else tuple(listed), np.array(ys)
    flat = all(x.ndim == 1 for x in xs) and all(x.dtype.kind in "iu" for x in xs)
    odd = next((x.shape for x in xs if x.shape != xs[0].shape), None)
    if odd is not None and not flat:
        raise DataError(f"{who}: samples have shapes {xs[0].shape} and {odd}; give all the same shape")
    return (xs, np.array(ys)) if odd is not None else checked_pair((np.array(xs), np.array(ys)), who)


LABELS = ("labels", "label", "target", "y")


def _pair(sample: Any, who: str) -> tuple[Any, Any]:
    """Return a sample's inputs and target; a mapping names its target as Hugging Face does."""
    if isinstance(sample, Mapping):
        named = next((name for name in LABELS if name in sample), None)
        if named is None or len(sample) < 2:
            raise DataError(f"{who}: a sample has {', '.join(map(str, sample))}; call its target labels or label")
        return {name: value for name, value in sample.items() if name != named}, sample[named]
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise DataError(f"{who}: a sample is not a pair; let the torch Dataset give (input, target)")
    return sample[0], sample[1]


def _samples(data: torch.utils.data.Dataset[Any], who: str) -> Iterator[Any]:
    """Yield the samples in their order; the error names a sample that cannot be read."""
    if not isinstance(data, torch.utils.data.IterableDataset) and not hasattr(data, "__len__"):
        raise DataError(f"{who}: the torch Dataset has no length; give it __len__, or make it an IterableDataset")
    read = 0
    try:
        streamed = isinstance(data, torch.utils.data.IterableDataset)
        for sample in iter(data) if streamed else (data[k] for k in range(len(data))):
            yield sample
            read += 1
    except Exception as error:  # a user's Dataset may raise anything
        where = f"{who}: sample {read} of the torch Dataset"
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise DataError(f"{where} cannot be read ({reason}); correct it or leave it out") from error
