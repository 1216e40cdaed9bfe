"""Identifiers: columns with numbers of rows, patients or cases instead of measurements.

A model memorises such a column. The rules are narrow, because a measurement must never be taken for an identifier: each
rule requires whole numbers that are all different.
"""

import re

import numpy as np

from sparsona.data.dataset import Array

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
    """True if a column counts rows: it rises by one per row, or, with many rows, in some order.

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
    """True if a column is an identifier: another whole number in every row, and

    - its name is typical (`patient_id`, `caseNr`), or
    - its numbers are spread evenly over a range far larger than the number of rows. Measurements gather around a
      middle, or thin out.

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
