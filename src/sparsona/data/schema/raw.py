"""Encode raw rows for a model: any container of the schema's columns, with or without a target."""

import logging
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import numpy as np

from sparsona.data._arrays import as_array, by_name, plain_array
from sparsona.data.dataset import Array
from sparsona.data.fields import packed
from sparsona.data.schema.columns import in_capitals
from sparsona.data.schema.rows import Rows, features_of
from sparsona.data.schema.schema import Category, Schema
from sparsona.data.schema.table import Table
from sparsona.errors import DataError

log = logging.getLogger(__name__)


def encode_raw(schema: Schema, given: Any, where: str = "the rows") -> Array:
    """Return a model's inputs from raw rows: a table, a mapping of columns, or an array in the schema's order.

    A mapping of single values is one row.

    >>> from sparsona.data.schema.schema import Category, Number
    >>> schema = Schema("classification", ("y",), features=(Number("a", 1.0, 2.0), Category("b", ("u", "v"))))
    >>> encode_raw(schema, {"b": ["v", "u"], "a": [5, 1], "more": [0, 0]}).tolist()
    [[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    >>> encode_raw(schema, {"a": 5, "b": "v"}).tolist()
    [[2.0, 0.0, 1.0]]
    """
    if schema.fields:
        return packed(by_name(given), schema.fields, where)
    if schema.inputs != "table":
        return _block(schema, given, where)
    table = (given if isinstance(given, Table) else _table(schema, given, where)).read(schema.format, settled=True)
    for name in schema.columns:
        if name not in table.columns:
            near = in_capitals(name, table.columns)
            raise DataError(f"{table.where} has no column {name!r}, which the model needs{near or '; add it'}")
    numeric = {feature.column: feature.numeric for feature in schema.features if isinstance(feature, Category)}
    rows = features_of(table, schema.columns, schema.categorical, settled=True, numeric=numeric)
    if not isinstance(given, Table) or given not in _TOLD:
        _warn_of_unseen(schema, rows, table)
    if isinstance(given, Table):
        _TOLD.add(given)
    return schema.encode(rows)


_TOLD: WeakSet[Table] = WeakSet()
"""Tables that had their warning: a table is often encoded more than once."""


def _warn_of_unseen(schema: Schema, rows: Rows, table: Table) -> None:
    """Warn of categories that no training row has; they are predicted as missing."""
    for feature in schema.features:
        if not isinstance(feature, Category):
            continue
        held = rows.categories[feature.column]
        unseen = np.flatnonzero((held != "") & ~np.isin(held, np.array(feature.values, np.str_)))
        if len(unseen):
            more = f", as are {len(unseen) - 1} more rows" if len(unseen) > 1 else ""
            where = f"{table.at(int(unseen[0]))}, column {feature.column!r}: {str(held[unseen[0]])!r}"
            log.warning("%s is in no training row; it is predicted as if it were missing%s", where, more)


def _table(schema: Schema, given: Any, where: str) -> Table:
    if isinstance(given, Mapping):
        columns = {name: _column(values) for name, values in given.items()}
        first, rows = next(((name, len(values)) for name, values in columns.items()), ("", 0))
        for name, values in columns.items():
            if values.shape != (rows,):
                here = f"{where}, column {name!r} has values of shape {values.shape}"
                raise DataError(f"{here}, {first!r} of ({rows},); give every column one value a row")
        return _raw(where, columns)
    array = plain_array(given)
    if array.ndim != 2 or array.shape[1] != len(schema.columns):
        shape = f"(rows, {len(schema.columns)})"
        raise DataError(f"{where} have shape {array.shape}; give {shape}: {', '.join(schema.columns)}")
    return _raw(where, {name: _column(array[:, k]) for k, name in enumerate(schema.columns)})


def _raw(where: str, columns: Mapping[str, Array]) -> Table:
    return Table(
        "", where, columns, raw=frozenset(name for name, values in columns.items() if values.dtype.kind == "U")
    )


def _column(values: Any) -> Array:
    array = np.atleast_1d(plain_array(values))
    if array.dtype.kind in "biufM":
        return array
    return np.array(["" if cell is None or cell != cell else str(cell) for cell in array.tolist()], np.str_)


def _block(schema: Schema, given: Any, where: str) -> Array:
    found = given.block if isinstance(given, Table) else as_array(given, where)
    if found is None:
        raise DataError(f"{where} is a table, but the model takes samples of shape {schema.shape}; give an .npz with x")
    block: Array = found[:, None] if schema.inputs == "images" and found.ndim == 3 else found
    if block.shape[1:] != schema.shape:
        raise DataError(f"{where} have shape {block.shape}; give {('samples', *schema.shape)}")
    kind = {"images": np.uint8, "tokens": np.int32}.get(schema.inputs, np.float32)
    with np.errstate(invalid="ignore"):
        made = np.ascontiguousarray(block, kind)
    if kind is not np.float32 and not np.array_equal(made, block):
        wanted = f"the model takes {schema.inputs} of {made.dtype}"
        raise DataError(f"{where} hold values of {block.dtype} that are no {made.dtype}; {wanted}, as in training")
    return schema.encode_block(made)
