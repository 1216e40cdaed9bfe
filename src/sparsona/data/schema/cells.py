"""Cells of a table as numbers or as names."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.schema.format import Format


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
