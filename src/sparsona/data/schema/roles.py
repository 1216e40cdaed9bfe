"""The role of each column of a table (target, feature, left out), and the tasks that a target's values allow."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.schema.columns import TARGETS, Columns, TaskName, as_option, in_capitals
from sparsona.data.schema.table import EXACT, Table
from sparsona.errors import DataError, InputError
from sparsona.registry import suggest


@dataclass(frozen=True)
class ColumnSplit:
    """A split by a column: rows in the order of a time, or whole groups. `gap`: rows nearer to a cut are left out."""

    by: Literal["time", "group"]
    column: str
    gap: float = 0.0


@dataclass(frozen=True)
class Roles:
    """The columns of a table by role. `categorical` may name the target, whose classes are then texts."""

    target: tuple[str, ...]
    features: tuple[str, ...]
    categorical: tuple[str, ...]
    dropped: Mapping[str, str]


def along_of(spec: str) -> ColumnSplit | None:
    """Parse ``random``, ``time:COLUMN``, ``time:COLUMN:GAP`` and ``group:COLUMN``.

    >>> along_of("time:second:2.5"), along_of("random")
    (ColumnSplit(by='time', column='second', gap=2.5), None)
    """
    by, _, rest = spec.partition(":")
    if spec == "random":
        return None
    if by == "group" and rest:
        return ColumnSplit("group", rest)
    if by == "time" and rest:
        column, colon, last = rest.rpartition(":")
        try:
            gap = float(last) if colon else 0.0
        except ValueError:
            return ColumnSplit("time", rest)
        if not 0 <= gap < float("inf"):
            raise InputError(f"split {spec!r}: the gap must be a number from 0 on")
        return ColumnSplit("time", column, gap) if colon else ColumnSplit("time", rest)
    raise InputError(f"split {spec!r} is not known; choose random, time:COLUMN, time:COLUMN:GAP or group:COLUMN")


def roles_of(table: Table, columns: Columns, along: ColumnSplit | None = None) -> Roles:
    """Return the role of each column. A column in --drop may be missing here, since another owner may have it.

    >>> import numpy as np
    >>> table = Table("a", "a.csv", {"age": np.zeros(2), "name": np.array(["x", "y"]), "label": np.zeros(2)})
    >>> roles_of(table, Columns(drop=("name",))).features
    ('age',)
    """
    declared = _declared(columns, along)
    _check_declared(table, declared)
    target = columns.target or table.target or (_target(table, columns.drop),)
    for name in target:
        for option in ("--features", "--drop", "--client"):
            if name in declared[option]:
                raise DataError(f"column {name!r} is the target and named by {option}; leave it out there")
    dropped = _dropped(table, columns, along, target)
    features = tuple(name for name in columns.features if name not in columns.drop)
    if not columns.features:
        features = tuple(name for name in table.columns if name not in (*target, *dropped))
        for name in features:
            _refuse_unasked(table, name, name in columns.categorical or name in table.categories)
    if not features and table.block is None:
        raise DataError(f"{table.where} has no feature besides the target {target[0]!r}; give at least one")
    named = {*columns.categorical, *table.categories}
    return Roles(target, features, tuple(name for name in (*features, *target) if name in named), dropped)


def _declared(columns: Columns, along: ColumnSplit | None) -> dict[str, tuple[str, ...]]:
    """Return the columns that each option names."""
    return {
        "--target": columns.target,
        "--features": columns.features,
        "--drop": columns.drop,
        "--categorical": tuple(name for name in columns.categorical if name not in columns.drop),
        "--client": (columns.client,) if columns.client else (),
        "--split": (along.column,) if along else (),
    }


def _check_declared(table: Table, declared: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a column that an option names twice, or that the table lacks."""
    for option, given in declared.items():
        for name in given:
            if given.count(name) > 1:
                raise DataError(f"{option} names {name!r} twice: name it once")
            if name not in table.columns and option != "--drop":
                raise DataError(f"{table.where} has no column {name!r}, which {option} names{_near(name, table)}")


def _dropped(table: Table, columns: Columns, along: ColumnSplit | None, target: tuple[str, ...]) -> dict[str, str]:
    """Return the columns that are left out, with the reasons."""
    dropped = {name: "--drop" for name in columns.drop if name in table.columns}
    if columns.client:
        dropped[columns.client] = "the client"
    if along is not None and along.column not in (*columns.features, *target):
        dropped[along.column] = f"split by {along.by}"
    if columns.features:
        kept = (*columns.features, *target, *dropped)
        dropped |= {name: "not in --features" for name in table.columns if name not in kept}
    return dropped


def check_dropped(tables: Sequence[Table], dropped: Sequence[str]) -> None:
    """Refuse a column in --drop that no owner has; this needs all tables."""
    known = {name for table in tables for name in table.columns}
    for name in dropped:
        if name not in known:
            where = f"{tables[0].where} has no" if len(tables) == 1 else f"none of the {len(tables)} tables has a"
            raise DataError(f"{where} column {name!r}, which --drop names{suggest(name, known)}")


def _target(table: Table, dropped: tuple[str, ...]) -> str:
    found = [name for name in table.columns if name.lower() in TARGETS and name not in dropped]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{table.where} has columns {' and '.join(map(repr, found))}; pass --target with one of them")
    known = ", ".join(list(table.columns)[:8]) + (", ..." if len(table.columns) > 8 else "")
    raise DataError(
        f"{table.where} has no column called {', '.join(TARGETS[:-1])} or {TARGETS[-1]}; "
        f"pass --target with one of {known}"
    )


def _refuse_unasked(table: Table, name: str, categorical: bool) -> None:
    """Refuse an unnamed feature that is probably a mistake: it counts or names rows, or has no name.

    --features accepts it; so is a column beside samples of several axes.
    """
    if name in table.aside:
        raise DataError(
            f"{table.where} holds {name!r}, which is neither x nor y; "
            "name it with --split, --client or --drop, or leave it out"
        )
    if name.startswith("Unnamed: "):
        raise DataError(
            f"{table.where}, column {int(name[9:]) + 1} has no name, as a pandas index has none; "
            f"pass --drop {as_option(name)}, or write the file with index=False"
        )
    fix = f"pass --drop {as_option(name)}, or name the --features to learn from"
    if counts_rows(table.columns[name]):
        raise DataError(f"{table.where}, column {name!r} only counts the rows; {fix}")
    if not categorical and identifies(name, table.columns[name]):
        raise DataError(f"{table.where}, column {name!r} has another number in every row, as an identifier has; {fix}")


def _near(name: str, table: Table) -> str:
    return in_capitals(name, table.columns) or suggest(name, list(table.columns))


CALLED = frozenset(
    ("id", "ids", "pid", "uid", "uuid", "guid", "mrn", "ssn", "nr", "no", "key", "patient", "case", "record")
)
"""Words in the names of identifier columns."""

SOMEBODY = frozenset(("patient", "subject", "person", "participant", "user", "customer", "household", "session"))
"""Words for persons and devices, in the name of a column that groups rows."""

FEW, SOME, MANY = 4, 20, 50
"""Fewest rows for which a count from 0 or 1, a name, or the numbers alone are evidence."""

WIDE = 1000
"""Least range of random identifiers, in units of their number."""


def counts_rows(values: Array) -> bool:
    """True if a column counts rows: it rises by one per row, or, with many rows, in some order."""
    if values.dtype.kind not in "iuf" or len(values) < FEW:
        return False
    if len(values) < SOME and values[0] not in (0, 1):
        return False
    wide = values.astype(np.float64)
    ordered = wide if len(wide) < SOME else np.sort(wide)
    return bool(np.isfinite(wide).all() and np.array_equal(ordered - ordered[0], np.arange(len(ordered))))


def identifies(name: str, values: Array) -> bool:
    """True if a column is an identifier: another whole number in every row, and

    - its name is typical (`patient_id`, `caseNr`), or
    - its numbers are spread evenly over a range far larger than the number of rows. Measurements gather around a
      middle, or thin out.
    """
    if values.dtype.kind not in "iuf" or len(values) < SOME:
        return False
    wide = np.sort(values.astype(np.float64))
    if not np.isfinite(wide).all() or (wide != np.floor(wide)).any() or (wide[1:] == wide[:-1]).any():
        return False
    if CALLED & _words(name):
        return True
    return len(wide) >= MANY and wide[-1] - wide[0] >= WIDE * len(wide) and _evenly(wide)


def names_somebody(name: str) -> bool:
    """True if the name of a column is typical for the person or device of a row.

    >>> [names_somebody(name) for name in ("patient_id", "subject", "caseID", "user_age", "no_of_rooms")]
    [True, True, True, False, False]
    """
    words = _words(name)
    return bool(words & {"id", "pid", "uid", "uuid", "mrn", "ssn"}) or (len(words) == 1 and words <= SOMEBODY)


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def _evenly(ordered: Array) -> bool:
    """True if sorted numbers pass for a uniform sample (Kolmogorov and Smirnov, 1 %)."""
    place = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    gap = np.abs(place - np.linspace(0, 1, len(ordered))).max()
    return bool(gap < min(1.63 / len(ordered) ** 0.5, 0.15))


Kind = Literal["text", "whole", "decimal"]
Task = Literal["classification", "regression", "multilabel"]

FEW_CLASSES, MOST_CLASSES = 20, 10_000
"""Up to `FEW_CLASSES` whole numbers are classes. More than `MOST_CLASSES` classes are refused."""

TEXTS, IMAGES = 2, 10
"""Rows per class that make more than `FEW_CLASSES` texts classes, and more than `FEW_CLASSES` numbers beside images and
other arrays. In a table, such numbers are as likely days or doses."""


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
        return _several_targets(table, roles.target, several, task)
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
    if classes > MOST_CLASSES:
        raise DataError(
            f"target {name!r} has {classes} classes, at most {MOST_CLASSES} are possible; choose another --target"
        )
    enough = rows >= classes * (TEXTS if kind == "text" else IMAGES) and not (table and kind == "whole")
    if task == "auto" and classes > FEW_CLASSES and not enough:
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


def _several_targets(table: Table, targets: tuple[str, ...], several: list[Array], task: TaskName) -> Array:
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
