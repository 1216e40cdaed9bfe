"""The target: the tasks that a column of values allows."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.schema.columns import TaskName, as_option
from sparsona.data.schema.roles import Roles
from sparsona.data.schema.table import EXACT, Table
from sparsona.errors import DataError

Kind = Literal["text", "whole", "decimal"]
Task = Literal["classification", "regression", "multilabel"]

FEW, MOST = 20, 10_000
"""Up to `FEW` whole numbers are classes. More than `MOST` classes are refused."""

TEXTS, IMAGES = 2, 10
"""Rows per class that make more than `FEW` texts classes, and more than `FEW` numbers beside images and other arrays.
In a table, such numbers are as likely days or doses."""


def kind_of(target: Array) -> Kind:
    """Return the kind of a target's values.

    >>> kind_of(np.array([[1.0], [2.0]])), kind_of(np.array([[1.0], [2.5]])), kind_of(np.array(["a"]))
    ('whole', 'decimal', 'text')
    """
    if target.dtype.kind in "US":
        return "text"
    return "whole" if bool((np.isnan(target) | (target == np.floor(target))).all()) else "decimal"


def tells_classes(task: TaskName, targets: Sequence[str], kind: Kind) -> bool:
    """True if a target may be classes, whose names all owners must know."""
    return task == "classification" or (task == "auto" and len(targets) == 1 and kind != "decimal")


def target_of(table: Table, roles: Roles, task: TaskName) -> Array:
    """Return the target per row: texts, or float64 with one column per target; only labels may be missing."""
    several = [table.columns[name] for name in roles.target]
    named = roles.target[0] in roles.categorical
    if task != "multilabel" and (len(several) == 1 or task != "auto"):
        for name, values in zip(roles.target, several, strict=True):
            _refuse_missing(table, name, values)
    if len(several) > 1 or task == "multilabel":
        return _labels(table, roles.target, several, task)
    (name,), (values,) = roles.target, several
    if values.dtype.kind in "mM":
        raise DataError(f"{table.where}, column {name!r} holds dates; choose another --target")
    if values.dtype.kind in "US":
        found = [table.format.number(cell) for cell in values.tolist()]
        if task == "regression":
            row = next(row for row, cell in enumerate(found) if cell is None)
            where = f"{table.at(row)}, column {name!r}: {str(values[row])!r} is not a number"
            raise DataError(f"{where}; correct it, or leave --task regression out")
        known = [row for row, cell in enumerate(found) if cell is not None]
        if known and not named:
            row = found.index(None)
            raise DataError(
                f"{table.at(row)}, column {name!r}: {str(values[row])!r} is text, "
                f"{str(values[known[0]])!r} is a number; write the classes alike, "
                f"or pass --categorical {as_option(name)}"
            )
        return values.astype(np.str_)
    if named:
        return table.names(name)[0]
    made = values.astype(np.float64)
    _refuse_infinite(table, name, made)
    large = np.flatnonzero(np.abs(made) >= EXACT)
    if task != "regression" and len(large):
        row = int(large[0])
        raise DataError(
            f"{table.at(row)}, column {name!r}: {table.cell(row, name) or values[row]} has more digits than a number "
            f"holds; pass --categorical {as_option(name)} where it names a class, or --task regression"
        )
    decimals = np.flatnonzero(made != np.floor(made))
    if task == "auto" and 0 < 2 * len(decimals) <= len(made):
        row = int(decimals[0])
        raise DataError(
            f"{table.at(row)}, column {name!r}: {made[row]:g} is no whole number, as most are; "
            "correct it, or pass --task regression"
        )
    return made[:, None]


def infer(task: TaskName, kind: Kind, name: str, classes: int, rows: int, table: bool = True) -> Task:
    """Return the task of a target that all owners describe alike; the error for an ambiguous one names --task."""
    if task == "regression" or (task == "auto" and kind == "decimal"):
        return "regression"
    if task == "multilabel":
        return "multilabel"
    if classes > MOST:
        raise DataError(f"target {name!r} has {classes} classes, at most {MOST} are possible; choose another --target")
    enough = rows >= classes * (TEXTS if kind == "text" else IMAGES) and not (table and kind == "whole")
    if task == "auto" and classes > FEW and not enough:
        what = "whole numbers" if kind == "whole" else "texts"
        choice = "--task classification or --task regression" if kind == "whole" else "--task classification"
        raise DataError(
            f"target {name!r} holds {classes} different {what} in {rows} training rows; pass {choice}, "
            "or choose another --target"
        )
    if classes == 1:
        raise DataError(f"target {name!r} has one class only in all training rows; choose another --target")
    return "classification"


def _refuse_missing(table: Table, name: str, values: Array) -> None:
    if values.dtype.kind in "US":
        missing = values == ""
    else:
        missing = np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values.astype(np.float64))
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        where, cell = f"{table.at(row)}, column {name!r}", table.cell(row, name)
        if not cell:
            raise DataError(f"{where}: no target; fill it in or leave the line out")
        other = "leave the line out, or say with --missing what means missing"
        raise DataError(f"{where}: {cell!r} means that there is no target; fill it in, {other}")


def _refuse_infinite(table: Table, name: str, values: Array) -> None:
    odd = np.flatnonzero(np.isinf(values) | (np.abs(values) > np.finfo(np.float32).max))
    if len(odd):
        raise DataError(
            f"{table.at(int(odd[0]))}, column {name!r}: the target {values[odd[0]]:g} is infinite or beyond float32; "
            "correct it or leave the line out"
        )


def _labels(table: Table, targets: tuple[str, ...], several: list[Array], task: TaskName) -> Array:
    """Return several targets: yes or no each (NaN: unknown), or numbers."""
    for name, values in zip(targets, several, strict=True):
        if values.dtype.kind in "USmM":
            raise DataError(f"{table.where}, column {name!r} holds text; several targets must be numbers")
        _refuse_infinite(table, name, values.astype(np.float64))
    made = np.column_stack([values.astype(np.float64) for values in several])
    odd = np.argwhere(~(np.isnan(made) | (made == 0) | (made == 1)))
    if task != "regression" and len(odd):
        row, k = odd[0]
        raise DataError(
            f"{table.at(int(row))}, column {targets[k]!r}: {made[row, k]:g} is neither 0 nor 1, as several targets "
            "must be; correct it, or pass --task regression"
        )
    return made
