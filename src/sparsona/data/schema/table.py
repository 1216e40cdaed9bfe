"""An owner's raw table: columns by name, the meaning of cells, and the place of each row for error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparsona.data.dataset import Array, Field, Indices
from sparsona.data.schema.columns import Columns, Format
from sparsona.errors import DataError

MOST_COLUMNS = 100_000
"""Limit of columns: each becomes an input of the net, with a name, statistics and a line in messages."""


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of one owner, or of all owners if a column names each row's owner.

    `columns` hold numbers (NaN: missing), texts (empty: missing) or dates, one value per row. `block` holds samples of
    more than one axis, which have no columns. The last `test` rows are the owner's own test part. `lines` are the
    rows' lines in the file `where`. `categories` are columns that their own type declares as categorical; `aside` are
    columns that are used only where an option names them. `target` names the target if the source
    defines it.

    The meaning of cells depends on the declarations: until :meth:`read`, the columns `raw` hold the original texts, and
    `file` is a file that is still to be opened. Afterwards `written` has the original texts.
    """

    owner: str
    where: str
    columns: Mapping[str, Array]
    block: Array | None = None
    test: int = 0
    lines: Indices | None = None
    categories: frozenset[str] = frozenset()
    aside: frozenset[str] = frozenset()
    target: tuple[str, ...] = ()
    raw: frozenset[str] = frozenset()
    file: Callable[[Format, bool], Table] | None = None
    written: Mapping[str, Array] = field(default_factory=dict)
    format: Format = field(default_factory=Format)
    several: Mapping[str, Any] | None = None
    """The inputs by name if a sample has several; they become a `block` of bytes once all owners are known."""
    fields: tuple[Field, ...] = ()
    random: Any = None
    """The torch Dataset of the block, if its transforms are random."""

    def read(self, written: Format, settled: bool = False) -> Table:
        """Return the table with its cells read as numbers or texts.

        With a `settled` format, errors do not advise to declare it otherwise.

        >>> table = Table("a", "a.csv", {"x": np.array(["1,5", "-9"])}, raw=frozenset({"x"}))
        >>> table.read(Format(decimal=",", missing=("-9",))).columns
        {'x': array([1.5, nan])}
        """
        if self.file is not None:
            return replace(self.file(written, settled), owner=self.owner).read(written)
        columns = {
            column: numbers_or_texts(values.tolist(), written) if column in self.raw else without_codes(values, written)
            for column, values in self.columns.items()
        }
        texts = {column: self.columns[column] for column in self.raw}
        return replace(self, columns=columns, raw=frozenset(), written={**self.written, **texts}, format=written)

    def cell(self, row: int, column: str) -> str:
        """Return the original text of a cell; empty if it was no text."""
        return str(self.written[column][row]).strip() if column in self.written else ""

    def names(self, column: str, numeric: bool | None = None) -> tuple[Array, bool]:
        """Return a column's names (empty: missing), and whether they are numbers, so that 1 and 1.0 are one name.

        A column with codes such as 01 holds texts: 01 and 1 are two. `numeric` is the kind that a model has learnt;
        other cells are then named by their texts.

        >>> table = Table("a", "", {"x": np.array(["1", "1.0"]), "y": np.array(["01", "1"])}, raw=frozenset("xy"))
        >>> [table.read(Format()).names(column)[0].tolist() for column in "xy"]
        [['1', '1'], ['01', '1']]
        """
        values = self.columns[column]
        if column not in self.written:
            self._refuse_merged(column, values)
            return names(values), values.dtype.kind not in "USM"
        cells = [cell.strip() for cell in self.written[column].tolist()]
        if numeric is None:
            numeric = values.dtype.kind not in "US" and plainly_written(cells, self.format)
        read = {cell: self.format.number(cell) for cell in set(cells)}
        called = {
            cell: cell if found is None or (found == found and not numeric) else "" if found != found else name(found)
            for cell, found in read.items()
        }
        return np.array([called[cell] for cell in cells], np.str_), numeric

    def _refuse_merged(self, column: str, values: Array) -> None:
        """Refuse whole numbers that float64 cannot distinguish as names."""
        large = np.flatnonzero(np.abs(values) >= EXACT) if values.dtype.kind == "f" else np.zeros(0, int)
        if len(large):
            raise DataError(
                f"{self.at(int(large[0]))}, column {column!r}: {values[large[0]]:.0f} is a float64, where such numbers "
                "are no longer told apart; give the column as integers without missing ones, or as text"
            )

    def __len__(self) -> int:
        return len(self.block) if self.block is not None else len(next(iter(self.columns.values())))

    def at(self, row: int) -> str:
        """Return the place of a row for messages: the line of a file, else the row counted from 0.

        >>> Table("a", "a.csv", {"x": np.zeros(2)}, lines=np.array([2, 4])).at(1)
        'a.csv, line 4'
        """
        return f"{self.where}, row {row}" if self.lines is None else f"{self.where}, line {self.lines[row]}"


@dataclass(frozen=True)
class Tables:
    """All tables of a data set. `owned`: each belongs to a client; otherwise a partition divides them.

    `columns` are the publisher's declarations; the user's take precedence.
    """

    name: str
    tables: tuple[Table, ...]
    owned: bool
    model: str = "mlp"
    columns: Columns = field(default_factory=Columns)


def check_width(columns: int, where: str) -> None:
    """Refuse a table with too many columns."""
    if columns > MOST_COLUMNS:
        raise DataError(f"{where} has {columns} columns, at most {MOST_COLUMNS} can be used: drop some")


def numbers_or_texts(cells: Sequence[str], written: Format) -> Array:
    """Return a column as float64 if all known cells are numbers, else as texts; missing texts are empty.

    >>> numbers_or_texts(["1", "", "2.5"], Format()), numbers_or_texts(["1", "?", "two"], Format())
    (array([1. , nan, 2.5]), array(['1', '', 'two'], dtype='<U3'))
    """
    found = [written.number(cell) for cell in cells]
    if None not in found:
        return np.array(found, np.float64)
    return np.array(["" if n is not None and n != n else c.strip() for c, n in zip(cells, found, strict=True)], np.str_)


def without_codes(values: Array, written: Format) -> Array:
    """Return a column of numbers with NaN for codes of missing values.

    >>> without_codes(np.array([1, -9]), Format(missing=("-9",))).tolist()
    [1.0, nan]
    """
    if not written.codes or values.dtype.kind not in "iuf":
        return values
    missing = np.isin(values, sorted(written.codes))
    return np.where(missing, np.nan, values.astype(np.float64)) if missing.any() else values


PLAIN = re.compile(r"-?(0|[1-9][0-9]{0,14})?(\.[0-9]*)?")
"""Pattern of a plain number: no leading zeros, no exponent, at most 15 digits."""


def plainly_written(cells: Iterable[str], written: Format) -> bool:
    """True if numeric texts may be named by their numbers, so that 1 and 1.0 are the same: none is a code.

    >>> [plainly_written(cells, Format()) for cells in (["1", "2.0"], ["01", "1"], ["1e1", "10"])]
    [True, False, False]
    """
    for cell in set(cells):
        found = written.number(cell)
        if found is None or found != found:
            continue
        if not PLAIN.fullmatch(cell.strip().replace(written.decimal, ".")) or float(name(found)) != found:
            return False
    return True


EXACT = 2**53
"""From here on float64 merges neighbouring whole numbers."""


def name(value: float) -> str:
    """Return a number as the name of a class or category, the same for 3, 3.0 and a float32 of it.

    >>> name(3.0), name(-1), name(np.float32(0.1)), name(0.1), name(1e9), name(1.00000001), name(2**60 + 1)
    ('3', '-1', '0.1', '0.1', '1000000000', '1.00000001', '1152921504606846977')
    """
    if isinstance(value, int):
        return str(int(value))
    number = float(value)
    if number.is_integer() and abs(number) < EXACT:
        return str(int(number))
    with np.errstate(over="ignore"):
        single = np.float32(number)
    return str(single) if number in (float(single), float(str(single))) else repr(number)


def names(values: Array) -> Array:
    """Return a column of numbers, texts or dates as names; a missing value has an empty name.

    >>> names(np.array([1.0, np.nan, 2.0])).tolist(), names(np.array([True, False])).tolist()
    (['1', '', '2'], ['1', '0'])
    >>> names(np.array(["2026-03-01", "NaT", "2026-03-01T12:30"], "datetime64[us]")).tolist()
    ['2026-03-01', '', '2026-03-01T12:30:00']
    """
    if values.dtype.kind in "US":
        return values.astype(np.str_)
    if values.dtype.kind == "M":
        dates = np.datetime_as_string(values.astype("datetime64[us]")).tolist()
        told = [date.removesuffix(".000000").removesuffix("T00:00:00") for date in dates]
        return np.array(["" if date == "NaT" else date for date in told], np.str_)
    distinct, places = np.unique(values, return_inverse=True)
    texts = ["" if value != value else name(value) for value in distinct.tolist()]
    return np.array(texts, np.str_)[places]


def in_order(distinct: Iterable[str], numeric: bool) -> tuple[str, ...]:
    """Sort names in the order of their codes: numbers by size, texts by their characters.

    >>> in_order(["10", "9", "-1"], numeric=True), in_order(["b", "a"], numeric=False)
    (('-1', '9', '10'), ('a', 'b'))
    """
    return tuple(sorted(set(distinct), key=float) if numeric else sorted(set(distinct)))
