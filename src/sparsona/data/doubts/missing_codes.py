"""A number in the place of a missing value: -999, 9999, -1 among counts, 0 among blood pressures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.doubts import DOUBTS, Doubt, Sites

NINES = tuple(float("9" * digits) for digits in range(1, 8))
TENTHS = (99.9, 999.9, 9999.9, 99.99, 999.99)
CODES = np.array([*NINES, *TENTHS, *(-nine for nine in (*NINES, *TENTHS)), -1.0])
VARIED = 20
"""Different values from which on a column is a measurement or a count, of which a single negative value is odd."""
ZEROS, APART = 5, 0.4
"""Rows with a 0, and its distance to the other values in units of their spread, from which on a 0 is odd."""
UNKNOWN = frozenset(("unknown", "missing", "not known", "unclear", "not available", "tbd", "-", "--", ".", "#n/a", "x"))
"""Names of classes that are no classes."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for numbers and names that mean a missing value."""
    for name, values in sites.numbers():
        mine = values[sites.used]
        codes = codes_in(mine)
        rest = mine[~np.isin(mine, codes) & ~np.isnan(mine)]
        for code in codes:
            rows = sites.used[mine == code]
            target = name in sites.rows.targets
            other = "leave these lines out" if target else "leave these cells empty"
            # --missing holds for all columns, so it must be no value of another one.
            alone = code and not target and not any((o == code).any() for n, o in sites.numbers() if n != name)
            yield Doubt(
                sites.where(rows),
                name,
                len(rows),
                f"{code:g} stands apart from all others ({rest.min():g} to {rest.max():g}), as a missing value does",
                "it is learnt as a number",
                f"{other}, or pass --missing {code:g}" if alone else other,
            )
    if sites.classes is not None:
        yield from _unknown_classes(sites, sites.classes)


def codes_in(values: Array) -> list[float]:
    """The values that look like codes for a missing value."""
    known = values[~np.isnan(values)]
    found: list[float] = []
    candidates = _candidates(known)
    rest = known[~np.isin(known, candidates)]
    for code in candidates:
        there = known == code
        if len(rest) < 10 or there.sum() < 2:
            continue
        lowest, highest = rest.min(), rest.max()
        varied = len(np.unique(rest[:20_000])) >= VARIED
        if code == 0:
            low, high = np.quantile(rest, (0.05, 0.95))
            odd = varied and there.sum() >= max(ZEROS, len(known) / 100) and lowest > APART * (high - low)
        elif code < 0:
            odd = lowest >= 0 and (varied or (code < -1 and lowest - code > highest - lowest))
        else:
            odd = code - highest > highest - lowest > 0 and code > 2 * highest
        if odd:
            found.append(code)
    return found


def _candidates(known: Array) -> list[float]:
    """Codes that are the smallest or the largest value; what stands behind a code may be another one."""
    found: list[float] = []
    held = known
    while len(held) and len(found) < 4:
        ends = [float(end) for end in (held.min(), held.max()) if end in CODES or end == 0]
        if not ends:
            break
        found.append(ends[0])
        held = held[held != ends[0]]
    return found


def _unknown_classes(sites: Sites, classes: Array) -> Iterator[Doubt]:
    mine = classes[sites.used]
    names = np.unique(mine).tolist()
    odd = [name for name in names if name.strip().lower() in UNKNOWN]
    if sites.rows.kind != "text" and len(names) > 2:
        numbers = np.array([float(name) for name in names])
        for code in numbers[np.isin(numbers, CODES) & (np.abs(numbers) >= 9)].tolist():
            rest = numbers[numbers != code]
            if rest.min() >= 0 and abs(code - np.median(rest)) > 2 * (rest.max() - rest.min() + 1):
                odd.append(f"{code:g}")
    for name in odd:
        rows = sites.used[mine == name]
        yield Doubt(
            sites.where(rows),
            sites.target,
            len(rows),
            f"{name!r} is a class",
            "the model learns to predict that the label is unknown",
            "leave these lines out",
        )
