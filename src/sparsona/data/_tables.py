"""Tables as a data set of raw rows, before the clients agree on a schema."""

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np

from sparsona.data.dataset import Array, ClientSplit, Dataset
from sparsona.data.schema.bounds import within
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.exchange import Agreement, apply
from sparsona.data.schema.roles import ColumnSplit, check_dropped
from sparsona.data.schema.rows import Rows, joined, understand
from sparsona.data.schema.schema import class_names
from sparsona.data.schema.table import Table, Tables, in_order
from sparsona.data.varied import ResampledRows
from sparsona.errors import DataError

UNKNOWN = -1


def declared(publisher: Columns, user: Columns) -> Columns:
    """Return the user's declarations, completed by the publisher's."""
    said = {f.name: getattr(user, f.name) for f in fields(Columns) if getattr(user, f.name) != f.default}
    return replace(publisher, **said)


def dataset_of(given: Tables, columns: Columns, along: ColumnSplit | None = None, *, whole: bool = False) -> Dataset:
    """Return a data set of these tables, with the owners' test parts at its end.

    `whole`: these are the tables of all owners, so a column in --drop must be in one of them.

    Its `rows` are raw. Until :func:`agreed` has prepared them, `inputs` are the columns of numbers as they came and
    `targets` are classes counted over all rows: enough for a partition, not for training.
    """
    columns = declared(given.columns, columns)
    given = replace(given, tables=tuple(table.read(columns.format) for table in given.tables))
    if whole:
        check_dropped(given.tables, columns.drop)
    parts = [within(understand(table, columns, along)) for table in given.tables]
    rows = joined(parts, [table.where for table in given.tables])
    owners, called = _owners(given, columns)
    last = np.concatenate([np.arange(len(table)) >= len(table) - table.test for table in given.tables])
    order = np.argsort(last, kind="stable")
    if last.any():
        rows, owners = rows.take(order), None if owners is None else owners[order]
    numbers = [np.column_stack([np.full(len(one), k), np.arange(len(one))]) for k, one in enumerate(given.tables)]
    redrawn = ResampledRows(tuple(table.random for table in given.tables), np.concatenate(numbers)[order])
    targets, classes, class_list = _provisional(rows)
    tokens = rows.inputs == "tokens"
    return Dataset(
        name=given.name,
        inputs=rows.numbers.astype(np.float32) if rows.block is None else rows.block,
        targets=targets,
        classes=classes,
        official_test=int(last.sum()),
        groups=owners,
        group_names=called,
        class_names=class_list,
        model="text-embedding" if tokens else given.model,
        vocabulary=int(rows.block.max()) + 1 if tokens and rows.block is not None else 0,
        rows=rows,
        fields=rows.fields,
        redrawn=redrawn if rows.block is not None and all(table.random is not None for table in given.tables) else None,
        places=tuple(table.where for table in given.tables) if given.owned and not columns.client else (),
    )


def agreed_dataset(data: Dataset, splits: Mapping[str, ClientSplit], agreement: Agreement) -> Dataset:
    """Return the data set with prepared rows, each client's by its own schema."""
    rows = data.rows
    assert rows is not None
    schemas = agreement.schemas
    shared = next(iter(schemas.values()))
    if shared.scaling != "own":
        inputs, targets = apply(shared, rows)
    else:
        inputs = np.zeros((len(rows), *shared.input_shape), np.float32)
        targets = shared.targets_of(rows)
        for client, split in splits.items():
            mine = np.concatenate([split.train, split.validation, split.test])
            inputs[mine] = schemas[client].encode(rows.take(mine))
    mean, std = shared.batch_scaling
    return replace(
        data,
        inputs=inputs,
        targets=targets,
        classes=len(shared.classes),
        class_names=shared.classes,
        mean=mean,
        std=std,
        vocabulary=shared.vocabulary,
        rows=None,
        redrawn=None if data.redrawn is None else replace(data.redrawn, encode=shared.encode_block),
    )


def _provisional(rows: Rows) -> tuple[Array, int, tuple[str, ...]]:
    if len(rows.targets) > 1 or rows.task in ("regression", "multilabel"):
        values = rows.target
        return (values[:, 0] if values.shape[1] == 1 and rows.task == "regression" else values), 0, ()
    if rows.kind == "decimal" and rows.task == "auto":
        return rows.target[:, 0], 0, ()
    held = class_names(rows)
    distinct, places = np.unique(held, return_inverse=True)
    listed = in_order(distinct.tolist(), rows.kind != "text")
    number = np.array([listed.index(name) for name in distinct.tolist()], np.int64)
    return number[places], len(listed), listed


def _owners(given: Tables, columns: Columns) -> tuple[Array | None, tuple[str, ...]]:
    """Return the owner of each row and the owners' names; a row without a name has no owner."""
    if not columns.client:
        if not given.owned:
            return None, ()
        sizes = [len(table) for table in given.tables]
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes), tuple(t.owner for t in given.tables)
    if given.owned and len(given.tables) > 1:
        raise DataError(f"{given.name} has a table a client already; leave --client out")
    found = [_clients(table, columns.client) for table in given.tables]
    held, numeric = np.concatenate([names for names, _ in found]), all(numeric for _, numeric in found)
    called = in_order([name for name in np.unique(held).tolist() if name], numeric)
    place = {name: k for k, name in enumerate(called)} | {"": UNKNOWN}
    return np.array([place[name] for name in held.tolist()], np.int64), called


def _clients(table: Table, column: str) -> tuple[Array, bool]:
    held, numeric = table.names(column)
    missing = np.flatnonzero(held[: len(table) - table.test] == "")
    if len(missing):
        where, cell = f"{table.at(int(missing[0]))}, column {column!r}", table.cell(int(missing[0]), column)
        found = f"{cell!r} means that there is no client" if cell else "no client"
        raise DataError(f"{where}: {found}; fill it in or leave the line out{', or see --missing' if cell else ''}")
    return held, numeric
