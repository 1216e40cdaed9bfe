"""The user's own data in Python: arrays, DataFrames, torch Datasets, Hugging Face data sets, one or one per client."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch.utils.data

from sparsona.data._arrays import Pair, from_pairs, read_torch
from sparsona.data._frames import from_frame, from_huggingface, is_frame
from sparsona.data._tables import dataset_of
from sparsona.data.dataset import Dataset
from sparsona.data.fields import fields_of, packed
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.roles import ColumnSplit
from sparsona.data.schema.table import Table, Tables
from sparsona.data.varied import is_random, seeded
from sparsona.errors import DataError

log = logging.getLogger(__name__)


def from_arrays(
    clients: Pair | Mapping[str, Pair] | Mapping[str, Mapping[str, Pair]],
    *,
    name: str = "arrays",
    model: str | None = None,
    columns: Columns | None = None,
) -> Dataset:
    """Return a data set from arrays: ``{"berlin": (x, y), ...}`` with one natural group per client.

    A client may bring its own test data, ``{"berlin": {"train": (x, y), "test": (x, y)}, ...}``; then all
    must. A plain pair ``(x, y)`` is a data set without groups, for a partition to spread.

    >>> data = from_arrays({"a": ([[0.5, 1.0], [2.0, 3.0]], [0, 1]), "b": ([[1.0, float("nan")]], [2])})
    >>> len(data), data.classes, data.group_names, data.groups.tolist()
    (3, 3, ('a', 'b'), [0, 0, 1])

    Inputs of two axes are a table, whose columns are called x0, x1, ...; uint8 with more axes are images, (n, height,
    width) or (n, channels, height, width); others are (n, channels, ...). Targets are texts, whole numbers or numbers,
    as :class:`~sparsona.data.Columns` declares them; a matrix of 0 and 1 is multi-label.
    """
    return from_python(clients, name=name, model=model, columns=columns or Columns())


def from_torch(
    data: torch.utils.data.Dataset[Any] | Mapping[str, torch.utils.data.Dataset[Any]],
    test: torch.utils.data.Dataset[Any] | Mapping[str, torch.utils.data.Dataset[Any]] | None = None,
    *,
    name: str = "torch",
    model: str | None = None,
    columns: Columns | None = None,
) -> Dataset:
    """Return a data set from a torch Dataset of pairs, or from one per client; `test` is the official test part.

    >>> pairs = torch.utils.data.TensorDataset(torch.zeros(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> from_torch({"north": pairs, "south": pairs}).group_names
    ('north', 'south')

    All samples are read once. With random transforms, training draws its samples again in each epoch.
    """
    if isinstance(data, Mapping) != isinstance(test, Mapping) and test is not None:
        raise DataError(f"{name}: data and test must both be one torch Dataset, or both one a client")
    if not isinstance(data, Mapping):
        one = _torch_table(data, test, "", "the torch Dataset")
        return _dataset(name, [one], False, model, columns, None)
    theirs = test if isinstance(test, Mapping) else {}
    if theirs and set(theirs) != set(data):
        odd = min(set(theirs) ^ set(data))
        raise DataError(f"{name}: client {odd!r} is in only one of data and test; give both the same clients")
    return from_python(
        {client: {"train": one} | ({"test": theirs[client]} if theirs else {}) for client, one in data.items()},
        name=name,
        model=model,
        columns=columns or Columns(),
    )


def from_python(
    given: Any,
    *,
    name: str = "arrays",
    model: str | None = None,
    columns: Columns,
    along: ColumnSplit | None = None,
) -> Dataset:
    """Return a data set from a pair of arrays, a DataFrame, a torch Dataset or a Hugging Face data set.

    A mapping has one of these per client.

    """
    if not isinstance(given, Mapping):
        where = f"the {type(given).__name__}" if not isinstance(given, tuple | list) else "the arrays"
        return _dataset(name, [_one(given, "", where)], False, model, columns, along)
    if not given:
        raise DataError(f"{name}: there is no client; give at least one")
    called: dict[str, Any] = {}
    for client in given:
        if str(client) in called:
            both = f"{called[str(client)]!r} and {client!r}"
            raise DataError(f"{name}: clients {both} are both called {str(client)!r}; give each a name of its own")
        called[str(client)] = client
    tables = [_client(str(client), one) for client, one in given.items()]
    tested = sum(table.test > 0 for table in tables)
    if tested not in (0, len(tables)):
        raise DataError(f"{name}: some clients bring test data and some do not; give it for all or for none")
    return _dataset(name, tables, True, model, columns, along)


def _client(client: str, given: Any) -> Table:
    where = f"client {client!r}"
    if not isinstance(given, Mapping):
        return _one(given, client, where)
    if "train" not in given or not set(given) <= {"train", "test"}:
        raise DataError(f"{where} has {', '.join(map(repr, given))}; give 'train' and perhaps 'test'")
    if isinstance(given["train"], torch.utils.data.Dataset):
        return _torch_table(given["train"], given.get("test"), client, where)
    return from_pairs(given["train"], given.get("test"), client, where)


def _torch_table(train: Any, test: Any, owner: str, where: str) -> Table:
    """Return the samples of a torch Dataset, read once with a fixed seed; training redraws random transforms."""
    with seeded(0):
        pair = read_torch(train, where)
        tests = None if test is None else read_torch(test, f"{where} (test)")
    table = from_pairs(pair, tests, owner, where)
    if not is_random(train):
        return table
    if table.block is None:
        log.warning("%s: the random transform is drawn once; give samples of more than one axis to have it anew", where)
        return table
    return replace(table, random=train)


def _one(given: Any, owner: str, where: str) -> Table:
    if isinstance(given, torch.utils.data.DataLoader):
        raise DataError(f"{where} is a DataLoader; give its dataset, and its batch size as training={{'batch': 32}}")
    if is_frame(given):
        return from_frame(given, owner, where)
    if isinstance(given, torch.utils.data.Dataset):
        return _torch_table(given, None, owner, where)
    if type(given).__module__.partition(".")[0] == "datasets":
        return from_huggingface(given, owner, where)
    return from_pairs(given, None, owner, where)


def _packed(tables: list[Table]) -> list[Table]:
    """Return the tables with several inputs packed into rows of bytes, of one length for all."""
    where = [table.where for table in tables]
    found = [table.several for table in tables if table.several is not None]
    if len(found) < len(tables):
        raise DataError(f"{where[0]}: some clients have several inputs and some one array; give all the same")
    fields = fields_of(found, where)
    return [
        replace(table, block=packed(one, fields, table.where), several=None, fields=fields)
        for table, one in zip(tables, found, strict=True)
    ]


def _dataset(
    name: str, tables: list[Table], owned: bool, model: str | None, columns: Columns | None, along: ColumnSplit | None
) -> Dataset:
    if any(table.several is not None for table in tables):
        tables = _packed(tables)
    given = Tables(name, tuple(tables), owned, model or "mlp")
    return dataset_of(given, columns or Columns(), along, whole=True)
