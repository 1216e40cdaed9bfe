"""The user's own data: arrays or torch Datasets, in one heap or client by client, as a Dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from sparsona.data.dataset import Array, Dataset, Indices
from sparsona.errors import DataError

Pair = tuple[Any, Any]
"""Inputs and targets: numpy arrays, torch tensors, or lists of numbers."""


def from_arrays(
    clients: Pair | Mapping[str, Pair] | Mapping[str, Mapping[str, Pair]],
    *,
    name: str = "arrays",
    model: str | None = None,
    standardise: bool = False,
) -> Dataset:
    """A data set from arrays: ``{"berlin": (x, y), ...}`` with a natural group a client.

    A client may bring its own test data, ``{"berlin": {"train": (x, y), "test": (x, y)}, ...}``; then all
    must. A plain pair ``(x, y)`` is a data set without groups, for a partition to spread.

    >>> data = from_arrays({"a": ([[0.5, 1.0], [2.0, 3.0]], [0, 1]), "b": ([[1.0, float("nan")]], [2])})
    >>> len(data), data.classes, data.group_names, data.groups.tolist(), data.has_missing
    (3, 3, ('a', 'b'), [0, 0, 1], True)

    Inputs: uint8 with two or three further dimensions are images, (n, height, width) or (n, channels, height,
    width); other whole numbers are tokens; floats are taken as they are, NaN being missing. Targets: whole
    numbers or texts are classes, floats are regression (one column) or multi-label (several), NaN being an
    unknown label. `standardise` sets a table's `mean` and `std` to those of its known training values.
    """
    if not isinstance(clients, Mapping):
        whole = checked_pair(clients, "the arrays")
        return assemble(name, [whole], [], model=model, standardise=standardise)
    if not clients:
        raise DataError(f"{name}: there is no client; give at least one")
    train, test = [], []
    for client, given in clients.items():
        parts = given if isinstance(given, Mapping) else {"train": given}
        if "train" not in parts or not set(parts) <= {"train", "test"}:
            raise DataError(f"client {client!r} has {', '.join(map(repr, parts))}; give 'train' and perhaps 'test'")
        train.append(checked_pair(parts["train"], f"client {client!r}"))
        if "test" in parts:
            test.append(checked_pair(parts["test"], f"client {client!r} (test)"))
    if test and len(test) < len(train):
        raise DataError(f"{name}: some clients bring test data and some do not; give it for all or for none")
    names = tuple(str(client) for client in clients)
    return assemble(name, train, test, names, model=model, standardise=standardise)


def from_torch(
    data: torch.utils.data.Dataset[Any] | Mapping[str, torch.utils.data.Dataset[Any]],
    test: torch.utils.data.Dataset[Any] | Mapping[str, torch.utils.data.Dataset[Any]] | None = None,
    *,
    name: str = "torch",
    model: str | None = None,
) -> Dataset:
    """A data set from a torch Dataset of pairs, or from one a client; `test` is the official test part.

    >>> pairs = torch.utils.data.TensorDataset(torch.zeros(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> from_torch({"north": pairs, "south": pairs}).group_names
    ('north', 'south')

    All samples are read once, so a random transformation is drawn once.
    """
    if isinstance(data, Mapping) != isinstance(test, Mapping) and test is not None:
        raise DataError(f"{name}: data and test must both be one torch Dataset, or both one a client")
    if not isinstance(data, Mapping):
        parts = [] if test is None or isinstance(test, Mapping) else [_read(test, "the test part")]
        return assemble(name, [_read(data, "the torch Dataset")], parts, model=model)
    tests = test if isinstance(test, Mapping) else {}
    if tests and set(tests) != set(data):
        odd = min(set(tests) ^ set(data))
        raise DataError(f"{name}: client {odd!r} is in only one of data and test; give both the same clients")
    return from_arrays(
        {
            client: {"train": _read(one, f"client {client!r}")}
            | ({"test": _read(tests[client], f"client {client!r} (test)")} if tests else {})
            for client, one in data.items()
        },
        name=name,
        model=model,
    )


def assemble(
    name: str,
    train: Sequence[tuple[Array, Array]],
    test: Sequence[tuple[Array, Array]],
    names: Sequence[str] = (),
    *,
    groups: Indices | None = None,
    model: str | None = None,
    standardise: bool = False,
) -> Dataset:
    """Join the parts into one Dataset, the test parts at the end.

    With `names` part k of `train`, and of `test` where there are any, is the group ``names[k]``, unless
    `groups` tell it sample by sample.
    """
    parts = [*train, *test]
    for k, (x, y) in enumerate(parts):
        who = f"client {names[k % len(train)]!r}" if groups is None and names else f"part {k + 1}"
        _same(parts[0], (x, y), f"{name}: {who}")
    inputs = _inputs(np.concatenate([x for x, _ in parts]), name)
    targets, classes, class_names = _targets(np.concatenate([y for _, y in parts]), name)
    if groups is None and names:
        owners = np.array([k % len(train) for k in range(len(parts))], np.int64)
        groups = np.repeat(owners, [len(y) for _, y in parts])
    official_test = sum(len(y) for _, y in test)
    tokens = inputs.dtype.kind == "i"
    mean, std = _statistics(inputs[: len(inputs) - official_test]) if standardise else ((), ())
    return Dataset(
        name=name,
        inputs=inputs,
        targets=targets,
        classes=classes,
        official_test=official_test,
        mean=mean,
        std=std,
        groups=groups,
        group_names=tuple(names),
        class_names=class_names,
        model=model or ("text-embedding" if tokens else "mlp"),
        vocabulary=int(inputs.max()) + 1 if tokens else 0,
    )


def _array(values: Any, what: str) -> Array:
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
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise DataError(f"{who}: give a pair of inputs and targets")
    x, y = _array(given[0], f"{who}, inputs"), _array(given[1], f"{who}, targets")
    if x.ndim < 2 or y.ndim not in (1, 2):
        problem = f"inputs have shape {x.shape} and targets {y.shape}"
        raise DataError(f"{who}: {problem}; give (samples, features...) and (samples,)")
    if len(x) != len(y):
        raise DataError(f"{who}: {len(x)} inputs and {len(y)} targets; give one target an input")
    if len(x) == 0:
        raise DataError(f"{who}: no samples; leave it out")
    if x.dtype.kind in "US":
        raise DataError(f"{who}: inputs are text; give numbers, for text the numbers of its words")
    return x, y


def _read(data: torch.utils.data.Dataset[Any], who: str) -> tuple[Array, Array]:
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
        xs.append(_array(sample[0], f"{who}, inputs"))
        ys.append(_array(sample[1], f"{who}, targets"))
    for arrays in (xs, ys):
        odd = next((array.shape for array in arrays if array.shape != arrays[0].shape), None)
        if odd is not None:
            raise DataError(f"{who}: samples have shapes {arrays[0].shape} and {odd}; give all the same shape")
    return checked_pair((np.array(xs), np.array(ys)), who)


def _kind(array: Array) -> str:
    """In which of the ways an array is understood: parts of one data set must agree on it."""
    if array.dtype == np.uint8:
        return "bytes"
    return {"b": "truth values", "i": "whole numbers", "u": "whole numbers", "f": "decimals"}.get(
        array.dtype.kind, "texts"
    )


def _same(first: tuple[Array, Array], other: tuple[Array, Array], who: str) -> None:
    for a, b, what in ((first[0], other[0], "inputs"), (first[1], other[1], "targets")):
        if a.shape[1:] != b.shape[1:]:
            raise DataError(
                f"{who} has {what} of shape {b.shape[1:]}, the first {a.shape[1:]}; give all the same shape"
            )
        if _kind(a) != _kind(b):
            raise DataError(f"{who} has {what} that are {_kind(b)}, the first {_kind(a)}; give all the same type")


def _inputs(x: Array, name: str) -> Array:
    """By the rules of `Dataset.inputs`."""
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        if x.ndim == 4 and x.shape[1] > 4 >= x.shape[3]:
            order = "put channels first: x.transpose(0, 3, 1, 2)"
            raise DataError(f"{name}: images of shape {x.shape[1:]} seem to have the channels last; {order}")
        return np.ascontiguousarray(x[:, None] if x.ndim == 3 else x)
    if x.dtype.kind in "iu" and x.dtype != np.uint8:
        if x.min() < 0 or x.max() >= 2**31:
            fix = "give floats for a table, or tokens from 0"
            raise DataError(f"{name}: whole numbers as inputs are tokens, and one is negative or huge; {fix}")
        return np.ascontiguousarray(x, np.int32)
    return _decimals(x, f"{name}: an input is infinite or beyond float32; make it a number, or NaN where missing")


def _decimals(values: Array, problem: str) -> Array:
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(values, np.float32)
    if np.isinf(made).any():
        raise DataError(problem)
    return made


def _targets(y: Array, name: str) -> tuple[Array, int, tuple[str, ...]]:
    """Targets by the rules of `Dataset.targets`, how many classes they are (0: none), and the classes'
    names.
    """
    if y.ndim == 2 and y.shape[1] == 1 and y.dtype.kind != "f":
        y = y[:, 0]
    if y.dtype.kind in "US":
        if y.ndim == 2:
            raise DataError(f"{name}: targets are texts in several columns; give one column, or numbers")
        names, numbers = np.unique(y.astype(str), return_inverse=True)
        return numbers.astype(np.int64), len(names), tuple(str(label) for label in names)
    if y.dtype.kind == "f" or y.ndim == 2:
        problem = f"{name}: a target is infinite or beyond float32; make it a number, or NaN where it is unknown"
        return _decimals(y, problem), 0, ()
    if y.min() < 0:
        raise DataError(
            f"{name}: class {y.min()} is negative; number the classes from 0, or give floats for regression"
        )
    return y.astype(np.int64), int(y.max()) + 1, ()


def _statistics(x: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each column of a table over its known values; 0 and 1 where they say
    nothing.
    """
    if x.ndim != 2 or x.dtype.kind != "f":
        return (), ()
    wide = x.astype(np.float64)
    known = ~np.isnan(wide)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, wide, 0).sum(axis=0) / count
    std = np.sqrt(np.where(known, (wide - mean) ** 2, 0).sum(axis=0) / count)
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1).tolist())
