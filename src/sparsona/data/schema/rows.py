"""Parsed rows: features, target, and their values.

Each owner parses its own table alone; tables are joined only if their columns agree. Means, categories and classes are
learnt later, in :mod:`sparsona.data.schema.exchange`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sparsona.data.dataset import Array, Field, Indices
from sparsona.data.schema.alike import ColumnKind, refuse_different
from sparsona.data.schema.columns import (
    DOUBTFUL,
    Columns,
    Format,
    InputKind,
    Scaling,
    Spelling,
    TaskName,
    as_option,
    as_option_list,
)
from sparsona.data.schema.roles import (
    MANY,
    ColumnSplit,
    Kind,
    kind_of,
    names_somebody,
    roles_of,
    target_of,
    tells_classes,
)
from sparsona.data.schema.table import Table, names
from sparsona.errors import DataError


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table, or samples of more than one axis, with their targets.

    `order` names the features as they stand in the table. `numbers` is a float64 matrix of those that are numbers
    (NaN: missing), in that order; `categories` holds the names of the others (empty: missing). `numeric` are the
    categories named by numbers. `block` holds samples of several axes instead. `target` is float64 with one column per
    target, or texts. `classes` are the declared names of classes. `along` is the column of the split, if any, `format`
    the form of the file.
    """

    inputs: InputKind
    order: tuple[str, ...]
    numbers: Array
    categories: Mapping[str, Array]
    numeric: frozenset[str]
    block: Array | None
    targets: tuple[str, ...]
    target: Array
    task: TaskName = "auto"
    scaling: Scaling = "agreed"
    spelling: Spelling = "alike"
    classes: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    """The declared ranges of numbers and names of categories; the rows are within them."""
    along: Array | None = None
    dropped: Mapping[str, str] = field(default_factory=dict)
    aside: Mapping[str, Array] = field(default_factory=dict)
    """Columns beside the features that may name a row's person, as texts, to check the split."""
    format: Format = field(default_factory=Format)
    fields: tuple[Field, ...] = ()
    """Several inputs per sample; `block` holds their bytes."""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def number_names(self) -> tuple[str, ...]:
        """The columns that hold numbers."""
        return tuple(name for name in self.order if name not in self.categories)

    @cached_property
    def columns(self) -> tuple[tuple[str, ColumnKind], ...]:
        """The features, and the kind of each."""
        kinds: dict[str, ColumnKind] = {
            name: "empty" if not (held != "").any() else "numeric" if name in self.numeric else "text"
            for name, held in self.categories.items()
        }
        return tuple((name, kinds.get(name, "number")) for name in self.order)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample of several axes; empty for tables."""
        return () if self.block is None else self.block.shape[1:]

    @cached_property
    def kind(self) -> Kind:
        """Return the kind of target: classes, numbers or several yes-or-no labels."""
        return kind_of(self.target)

    @property
    def tells_classes(self) -> bool:
        """True if the target may be classes, whose names all owners must know."""
        return tells_classes(self.task, self.targets, self.kind)

    def take(self, chosen: Indices) -> Rows:
        """Return some of the rows."""
        return replace(
            self,
            numbers=self.numbers[chosen],
            categories={name: values[chosen] for name, values in self.categories.items()},
            block=None if self.block is None else self.block[chosen],
            target=self.target[chosen],
            along=None if self.along is None else self.along[chosen],
            aside={name: values[chosen] for name, values in self.aside.items()},
        )


def understand(table: Table, columns: Columns, along: ColumnSplit | None = None) -> Rows:
    """Parse one table as its owner declares it; an ambiguity is an error that names the option.

    >>> table = Table("a", "a.csv", {"age": np.array([30.0, np.nan]), "label": np.array(["ill", "well"])})
    >>> rows = understand(table, Columns())
    >>> rows.order, rows.numbers.tolist(), rows.targets, rows.target.tolist()
    (('age',), [[30.0], [nan]], ('label',), ['ill', 'well'])
    """
    roles = roles_of(table, columns, along)
    if columns.inputs == "tokens" and table.block is None:  # the columns are the words of one text per row
        table = replace(table, block=np.column_stack([table.columns[name] for name in roles.features]))
        roles = replace(roles, features=())
    for name in dict.fromkeys((*roles.categorical, *roles.target)):
        _refuse_doubtful(table, name)
    features = features_of(table, roles.features, roles.categorical)
    for name, held in features.categories.items():
        if _one_a_row(held):
            raise DataError(
                f"{table.where}, column {name!r} has {len(np.unique(held))} values in {len(held)} rows, "
                f"about one a row; they would be sent to the server: pass --drop {as_option(name)}"
            )
    target = target_of(table, roles, columns.task)
    return replace(
        features,
        inputs="table" if table.block is None else _input_kind(table.block, columns.inputs),
        block=None if table.block is None else _block(table, columns.inputs),
        targets=roles.target,
        target=target,
        task=columns.task,
        scaling="none" if table.fields else columns.scaling,
        spelling=columns.spelling,
        classes=columns.classes,
        bounds=columns.bounds,
        along=_along(table, along),
        dropped=roles.dropped,
        aside={n: names(table.columns[n]) for n in roles.dropped if n != columns.client and names_somebody(n)},
        format=table.format,
        fields=table.fields,
    )


def _one_a_row(names: Array) -> bool:
    """True if a column of names has about one value per row."""
    known = names[names != ""]
    return len(known) >= MANY and len(np.unique(known)) > 0.8 * len(known)


def _refuse_doubtful(table: Table, name: str) -> None:
    """Refuse words such as none among names, because only the owner knows if they mean a missing value."""
    if table.format.missing is not None or table.columns[name].dtype.kind not in "US" or name not in table.written:
        return
    for row, cell in enumerate(table.written[name].tolist()):
        if cell.strip().lower() in DOUBTFUL:
            words = _and_this(table.format, cell.strip())
            raise DataError(
                f"{table.at(row)}, column {name!r}: {cell.strip()!r} may be a name or mean that the value is missing; "
                f"pass --missing {words} where it is missing, or --missing '' where it is a name"
            )


def features_of(
    table: Table,
    features: Sequence[str],
    categorical: Sequence[str],
    *,
    settled: bool = False,
    numeric: Mapping[str, bool] | None = None,
) -> Rows:
    """Return the features of a table without a target, for a model that predicts.

    With `settled` columns, errors do not advise to declare them otherwise. `numeric` are the categories that the model
    has learnt as numbers.
    """
    numbers = [name for name in features if name not in categorical]
    named = {name: table.names(name, (numeric or {}).get(name)) for name in features if name in categorical}
    rows = len(table)
    matrix = np.empty((rows, len(numbers)))
    for k, name in enumerate(numbers):
        matrix[:, k] = _numbers(table, name, settled)
    return Rows(
        inputs="table" if table.block is None else "arrays",
        order=tuple(features),
        numbers=matrix,
        categories={name: held for name, (held, _) in named.items()},
        numeric=frozenset(name for name, (_, number) in named.items() if number),
        block=None,
        targets=(),
        target=np.zeros((rows, 0)),
    )


def one_block(blocks: Sequence[Array]) -> Array:
    """Return the samples of all owners, concatenated; samples that are adjacent in memory are not copied.


    >>> whole = np.arange(6).reshape(3, 2)
    >>> np.shares_memory(one_block([whole[:1], whole[1:]]), whole)
    True
    """
    first, rows = blocks[0], sum(map(len, blocks))
    ends = [block.ctypes.data + block.nbytes for block in blocks]
    follow = all(block.ctypes.data == end for block, end in zip(blocks[1:], ends, strict=False))
    same = all(_owner(block) is _owner(first) and block.flags.c_contiguous for block in blocks)
    if len(blocks) == 1:
        return first
    if same and follow:
        return np.lib.stride_tricks.as_strided(first, (rows, *first.shape[1:]), writeable=False)
    return np.concatenate(blocks)


def _owner(array: Array) -> object:
    """Return the owner of an array's memory: another array, or a mapped file."""
    found: object = array
    while isinstance(found, np.ndarray) and found.base is not None:
        found = found.base
    return found


def joined(parts: Sequence[Rows], where: Sequence[str]) -> Rows:
    """Concatenate the rows of several owners, with columns in the order of the first; `where` names each part.

    Only a simulation has all rows in one place; on a network the messages are checked instead.
    """
    first = parts[0]
    for part, place in zip(parts[1:], where[1:], strict=True):
        refuse_different(where[0], first, place, part)
    wanted = first.number_names
    numbers = []
    for part in parts:
        at = {name: k for k, name in enumerate(part.number_names)}
        ordered = part.number_names == wanted
        numbers.append(part.numbers if ordered else part.numbers[:, [at[name] for name in wanted]])
    blocks = [part.block for part in parts if part.block is not None]
    return replace(
        first,
        numbers=np.concatenate(numbers),
        categories={name: np.concatenate([part.categories[name] for part in parts]) for name in first.categories},
        numeric=frozenset(
            name for name in first.categories if all(dict(p.columns)[name] in ("numeric", "empty") for p in parts)
        ),
        block=one_block(blocks) if blocks else None,
        target=np.concatenate([part.target for part in parts]),
        along=None if first.along is None else np.concatenate([p.along for p in parts if p.along is not None]),
        dropped={name: why for part in parts for name, why in part.dropped.items()},
        aside={
            name: np.concatenate([part.aside[name] for part in parts])
            for name in first.aside
            if all(name in part.aside for part in parts)
        },
    )


def _numbers(table: Table, name: str, settled: bool) -> Array:
    """Return a feature as float64; an error names the place of a cell that is not a number.

    Not float32: before scaling it may round large, different numbers to the same one.
    """
    values = table.columns[name]
    if values.dtype.kind in "US":
        raise DataError(_no_number(table, name, settled))
    if values.dtype.kind in "mM":
        if settled:
            raise DataError(f"{table.where}, column {name!r} holds dates; the model needs numbers there")
        raise DataError(
            f"{table.where}, column {name!r} holds dates; pass --drop {as_option(name)}, "
            f"or --split {as_option('time:' + name)}"
        )
    made = values.astype(np.float64)
    odd = np.flatnonzero(np.abs(made) > np.finfo(np.float32).max)
    if len(odd):
        raise DataError(
            f"{table.at(int(odd[0]))}, column {name!r}: {values[odd[0]]} is infinite or beyond float32; "
            "correct it, or leave it empty where it is missing"
        )
    return made


DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?")
OTHER_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./]\d{1,2}[./]\d{1,2}")


def _no_number(table: Table, name: str, settled: bool) -> str:
    values, written = table.columns[name], table.format
    texts = [row for row, cell in enumerate(values.tolist()) if cell and written.number(cell) is None]
    row, cell, called = texts[0], str(values[texts[0]]), as_option(name)
    where = f"{table.at(row)}, column {name!r}: {cell!r}"
    if settled:
        fix = "correct it, or leave it empty where it is missing"
        return f"{where} is not a number, which the model needs there; {fix}"
    other_sign = "," if written.decimal == "." else "."
    if replace(written, decimal=other_sign).number(cell) is not None:
        return f"{where} {_decimal(cell, written)}"
    if DATE.fullmatch(cell):
        return f"{where} is a date; pass --drop {called}, or --split {as_option('time:' + name)}"
    if OTHER_DATE.fullmatch(cell):
        return f"{where} is a date; pass --drop {called}, or write it as 2026-03-01 and pass --split time:{name}"
    if len(texts) == int((values != "").sum()):
        if _one_a_row(values):
            return f"{where} is text, as all of the column, and another in about every row; pass --drop {called}"
        sent = f"pass --categorical {called} to use it (its values are sent to the server)"
        return f"{where} is text, as all of the column; {sent}, or --drop {called}"
    missing = f"pass --missing {_and_this(written, cell)} where it means that, or" if cell.isprintable() else "or pass"
    fix = f"correct it, leave it empty where it is missing, {missing} --categorical {called}"
    return f"{where} is not a number; {fix} (its values are sent to the server)"


def _and_this(written: Format, cell: str) -> str:
    """Return the codes of a missing value and one more, as --missing takes them, which replaces the list."""
    return as_option_list([*sorted(written.words - {"", cell.lower()}), cell])


def _decimal(cell: str, written: Format) -> str:
    if written.decimal == ",":
        return "has a decimal point, and --decimal says a comma; write all numbers alike"
    if re.fullmatch(r"[+-]?\d{1,3},\d{3}", cell):
        return "has a comma; pass --decimal , where it is the decimal sign, else write the number without it"
    return "has a decimal comma; pass --decimal , where all files are written so"


def _along(table: Table, along: ColumnSplit | None) -> Array | None:
    if along is None:
        return None
    values = table.columns[along.column]
    if along.by == "group":
        found = table.names(along.column)[0] if values.dtype.kind not in "mM" else values.astype(np.str_)
        return _complete(table, along, found, found == "")
    if values.dtype.kind in "US":
        try:
            values = values.astype("datetime64[us]")
        except ValueError:
            raise DataError(
                f"{table.where}, column {along.column!r} holds neither numbers nor dates such as 2026-03-01T12:00; "
                "--split time:COLUMN needs them"
            ) from None
    if values.dtype.kind in "mM":
        return _complete(table, along, values.astype("datetime64[us]").astype(np.float64) / 1e6, np.isnat(values))
    return _complete(table, along, values.astype(np.float64), ~np.isfinite(values.astype(np.float64)))


def _complete(table: Table, along: ColumnSplit, values: Array, missing: Array) -> Array:
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise DataError(
            f"{table.at(row)}, column {along.column!r}: no value, and --split {along.by}:{along.column} needs one; "
            "fill it in or leave the line out"
        )
    return values


def _input_kind(block: Array, kind: InputKind) -> InputKind:
    if kind not in ("auto", "table"):
        return kind
    return "images" if block.dtype == np.uint8 and block.ndim in (3, 4) else "arrays"


def _block(table: Table, kind: InputKind) -> Array:
    """Return samples of several axes by the rules of `Dataset.inputs`."""
    x = table.block
    assert x is not None
    where = table.where
    if table.fields:
        return x
    if kind == "tokens":
        if x.dtype.kind not in "iuf" or x.ndim != 2 or not ((x >= 0) & (x < 2**31) & (x == np.floor(x))).all():
            raise DataError(f"{where}: tokens are whole numbers from 0, a row a text; leave --inputs tokens out")
        return np.ascontiguousarray(x, np.int32)
    if x.dtype == np.uint8 and x.ndim in (3, 4) and kind != "arrays":
        if x.ndim == 4 and x.shape[1] > 4 >= x.shape[3]:
            order = "put channels first: x.transpose(0, 3, 1, 2)"
            raise DataError(f"{where}: images of shape {x.shape[1:]} seem to have the channels last; {order}")
        return np.ascontiguousarray(x[:, None] if x.ndim == 3 else x)
    if kind == "images":
        raise DataError(f"{where}: images are uint8 of (samples, channels, height, width), not {x.dtype} of {x.shape}")
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(x, np.float32)
    if not np.isfinite(made).all():
        row = int(np.flatnonzero(~np.isfinite(made).reshape(len(made), -1).all(axis=1))[0])
        raise DataError(f"{table.at(row)}: a value is missing, infinite or beyond float32; fill it in")
    return made
