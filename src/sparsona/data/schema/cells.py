"""Cells of a table: which texts are numbers, which say that a value is missing, and how a number is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sparsona.data.dataset import Array

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
"""What a cell without a value may hold, in capitals or not."""


def is_missing(text: str) -> bool:
    """Whether a cell means that its value is not known."""
    return text.strip().lower() in MISSING


def number(text: str) -> float | None:
    """The number that a cell holds; NaN where it is missing, None where it is something else.

    >>> number(" 2.50"), number("1_000"), number("3,5")
    (2.5, None, None)
    """
    if is_missing(text):
        return float("nan")
    if "_" in text:  # Python reads 1_000 as a number, no spreadsheet does
        return None
    try:
        return float(text)
    except ValueError:
        return None


def numbers_or_texts(cells: Sequence[str]) -> Array:
    """A column of cells: float64 if all that are not missing are numbers, else their texts, missing ones empty.

    >>> numbers_or_texts(["1", "", "2.5"]), numbers_or_texts(["1", "?", "two"])
    (array([1. , nan, 2.5]), array(['1', '', 'two'], dtype='<U3'))
    """
    found = [number(cell) for cell in cells]
    if None not in found:
        return np.array(found, np.float64)
    return np.array(["" if is_missing(cell) else cell.strip() for cell in cells], np.str_)


def name(value: float) -> str:
    """A number as the name of a class or category, the same for 3, 3.0 and a float32 of it.

    >>> name(3.0), name(-1), name(np.float32(0.1)), name(0.1), name(1e9)
    ('3', '-1', '0.1', '0.1', '1000000000')
    """
    whole = float(value).is_integer() and abs(value) < 2**53
    return str(int(value)) if whole else str(np.float32(value))


def names(values: Array) -> Array:
    """A column of numbers or texts as names; the name of a missing value is empty.

    >>> names(np.array([1.0, np.nan, 2.0])).tolist(), names(np.array([True, False])).tolist()
    (['1', '', '2'], ['1', '0'])
    """
    if values.dtype.kind in "US":
        return values.astype(np.str_)
    distinct, places = np.unique(values, return_inverse=True)
    texts = ["" if value != value else name(value) for value in distinct.tolist()]
    return np.array(texts, np.str_)[places]


def in_order(distinct: Iterable[str], numeric: bool) -> tuple[str, ...]:
    """Names in the order in which they are counted: numbers by size, texts by their characters.

    >>> in_order(["10", "9", "-1"], numeric=True), in_order(["b", "a"], numeric=False)
    (('-1', '9', '10'), ('a', 'b'))
    """
    return tuple(sorted(set(distinct), key=float) if numeric else sorted(set(distinct)))
