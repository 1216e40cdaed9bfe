"""Columns that tell rows apart instead of describing them: numbers of rows, of patients, of cases.

A model learns such a column by heart. Measurements must never be taken for one, so the rules are narrow: each wants
whole numbers that are all different.
"""

import re

import numpy as np

from sparsona.data.dataset import Array

CALLED = frozenset(
    ("id", "ids", "pid", "uid", "uuid", "guid", "mrn", "ssn", "nr", "no", "key", "patient", "case", "record")
)
"""Words in the name of a column that numbers something."""

SOMEBODY = frozenset(("patient", "subject", "person", "participant", "user", "customer", "household", "session"))
"""Words for what has several rows, in the name of a column that says whose a row is."""

FEW, SOME, MANY = 4, 20, 50
"""Rows from which on a count from 0 or 1, a name, and the numbers alone are evidence."""

WIDE = 1000
"""Numbers that are drawn to tell rows apart leave so many others free for each that is used."""


def counts_rows(values: Array) -> bool:
    """Whether a column goes up by one from row to row; with many rows, whether it does so in some order.

    >>> counts_rows(np.array([0.0, 1.0, 2.0, 3.0])), counts_rows(np.array([0.0, 2.0, 4.0, 6.0]))
    (True, False)
    >>> counts_rows(np.arange(1000, 1030)), counts_rows(np.arange(1000, 1030)[::-1]), counts_rows(np.arange(31, 36))
    (True, True, False)
    """
    if values.dtype.kind not in "iuf" or len(values) < FEW:
        return False
    if len(values) < SOME and values[0] not in (0, 1):
        return False
    wide = values.astype(np.float64)
    ordered = wide if len(wide) < SOME else np.sort(wide)
    return bool(np.isfinite(wide).all() and np.array_equal(ordered - ordered[0], np.arange(len(ordered))))


def identifies(name: str, values: Array) -> bool:
    """Whether a column holds a number for each row, in the place of a name: another whole number in every row, and

    - the column is called as such columns are (`patient_id`, `caseNr`), or
    - the numbers are spread evenly over a range that is far larger than the number of rows. What is measured gathers
      around a middle, or thins out.

    >>> rng = np.random.default_rng(0)
    >>> identifies("x", rng.integers(0, 10**7, 200)), identifies("x", np.exp(rng.normal(10, 1, 200)).round())
    (True, False)
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
    """Whether a column is called as one that says to whom a row belongs.

    >>> [names_somebody(name) for name in ("patient_id", "subject", "caseID", "user_age", "no_of_rooms")]
    [True, True, True, False, False]
    """
    words = _words(name)
    return bool(words & {"id", "pid", "uid", "uuid", "mrn", "ssn"}) or (len(words) == 1 and words <= SOMEBODY)


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def _evenly(ordered: Array) -> bool:
    """Whether sorted numbers could be drawn evenly between the first and the last (Kolmogorov and Smirnov, 1 %)."""
    place = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    gap = np.abs(place - np.linspace(0, 1, len(ordered))).max()
    return bool(gap < min(1.63 / len(ordered) ** 0.5, 0.15))
