"""Doubts about numbers: codes for missing values, slips, other units, two columns in each other's place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from sparsona.data.dataset import Array, Indices
from sparsona.data.doubts import DOUBTS, Doubt, Sites

NINES = tuple(float("9" * digits) for digits in range(1, 8))
TENTHS = (99.9, 999.9, 9999.9, 99.99, 999.99)
CODES = np.array([*NINES, *TENTHS, *(-nine for nine in (*NINES, *TENTHS)), -1.0])
VARIED = 20
"""Least different values of a measurement or count; in such a column a single negative value is suspicious."""
ZEROS, APART = 5, 0.4
"""A 0 is suspicious with this many rows, at this distance from the other values in units of their spread."""
UNKNOWN = frozenset(("unknown", "missing", "not known", "unclear", "not available", "tbd", "-", "--", ".", "#n/a", "x"))
"""Names that stand for a missing class."""


@DOUBTS.named("missing-codes")
def missing_codes(sites: Sites) -> Iterator[Doubt]:
    """Find numbers that stand for a missing value: -999, 9999, -1 among counts, 0 among blood pressures."""
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
            yield sites.at(
                rows,
                name,
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
    """Return codes that are the smallest or the largest value; the next value may be a code, too."""
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
        yield sites.at(
            rows,
            sites.target,
            f"{name!r} is a class",
            "the model learns to predict that the label is unknown",
            "leave these lines out",
        )


LEAST, FAR, ALONE, SHARE = 20, 50, 10, 0.02
"""Least known values; least distance from the median, in units of the range of nine tenths of the values; by which
factor all others must be nearer; the largest share of the rows. Long tails (lognormal, money) thin out gradually and
stay below these.
"""


@DOUBTS.named("far-values")
def far_values(sites: Sites) -> Iterator[Doubt]:
    """Find a few values far from all others: a typing error, a sum below the column, or a code."""
    for name, values in sites.numbers():
        odd = far(values, sites.used, sites.sample)
        if not len(odd):
            continue
        inside = np.setdiff1d(sites.used, odd)
        low, high = np.nanmin(values[inside]), np.nanmax(values[inside])
        target = name in sites.rows.targets
        fix = f"correct {'it' if len(odd) == 1 else 'them'}, or " + (
            "leave the line out" if target else "leave the cell empty"
        )
        yield sites.at(
            odd,
            name,
            f"{values[odd[0]]:g} is far from all others ({low:g} to {high:g})",
            "it decides the mean and the deviation by which all values are scaled",
            f"{fix}; --missing {values[odd[0]]:g} if it means a missing value" if not target else fix,
        )


def far(values: Array, used: Indices, sample: Indices) -> Indices:
    """The rows whose values are far from all others; none where there are too many of them to be slips."""
    judged = values[sample]
    judged = judged[~np.isnan(judged)]
    none = np.zeros(0, np.int64)
    if len(judged) < LEAST:
        return none
    middle = np.median(judged)
    spread = np.abs(judged - middle)
    if not (spread > 0).any():
        return none
    usual = np.quantile(spread[spread > 0], 0.9)
    distance = np.abs(values[used] - middle)
    distance[np.isnan(distance)] = 0
    outside = np.flatnonzero(distance > ALONE * usual)
    if not len(outside) or len(outside) > max(3, SHARE * len(used)):
        return none
    inner = distance[distance <= ALONE * usual].max(initial=usual)
    ordered = np.sort(distance[outside])
    before = np.concatenate([[inner], ordered[:-1]])
    cuts = np.flatnonzero((ordered >= ALONE * before) & (ordered > FAR * usual))
    return used[distance >= ordered[cuts[0]]] if len(cuts) else none


ROWS, FACTOR, ALIKE = 10, 8.0, 3.0
"""Least rows of a client; the smallest factor between units; the largest difference of relative spreads, which a change
of unit does not alter.
"""


@DOUBTS.named("units")
def units(sites: Sites) -> Iterator[Doubt]:
    """A column that some clients measure in another unit: grams and kilograms, Celsius and Fahrenheit."""
    for name, values in sites.numbers():
        found = {client: quantiles(values[mine]) for client, mine in sites.judged.items()}
        known = {client: three for client, three in found.items() if three is not None}
        split = apart(known)
        if split is None:
            continue
        low, high = split
        few = low if len(low) < len(high) else high
        medians = [np.median([known[client][1] for client in side]) for side in (low, high)]
        yield sites.of(
            few,
            name,
            f"the median is {medians[few is high]:.3g}, elsewhere {medians[few is low]:.3g}: probably another unit",
            "one scaling for all makes one side constant",
            "convert the column, or pass --scaling own if the clients differ so much",
        )


def quantiles(values: Array) -> Array | None:
    """The 5 %, 50 % and 95 % quantiles of the positive values; None where few are positive."""
    known = values[~np.isnan(values)]
    positive = known[known > 0]
    if len(positive) < ROWS or len(positive) < 0.8 * len(known):
        return None
    found: Array = np.quantile(positive, (0.05, 0.5, 0.95))
    return found


def apart(known: dict[str, Array]) -> tuple[list[str], list[str]] | None:
    """The clients with small and with large values, where these are two units; else None."""
    if len(known) < 2:
        return None
    ordered = sorted(known, key=lambda client: float(known[client][1]))
    medians = np.log([known[client][1] for client in ordered])
    cut = 1 + int(np.argmax(np.diff(medians)))
    low, high = ordered[:cut], ordered[cut:]
    below, above = (np.array([known[client] for client in side]) for side in (low, high))
    if below[:, 2].max() >= above[:, 0].min():
        return None
    spreads = [float(np.median(np.log(side[:, 2] / side[:, 0]))) for side in (below, above)]
    if min(spreads) <= 0.005 or max(spreads) > ALIKE * min(spreads):
        return None
    ratio = float(np.median(above[:, 1]) / np.median(below[:, 1]))
    return (low, high) if ratio >= FACTOR or _fahrenheit(below, above) else None


def _fahrenheit(celsius: Array, other: Array) -> bool:
    """Return whether one side may hold the temperatures of the other in Fahrenheit."""
    low, middle, high = np.median(celsius, axis=0)
    converted = (np.median(other[:, 1]) - 32) / 1.8
    return bool(low >= 10 and high <= 45 and abs(converted - middle) <= max(high - low, 1))


@DOUBTS.named("swapped")
def swapped(sites: Sites) -> Iterator[Doubt]:
    """Find two columns of numbers that one client has exchanged."""
    names = sites.rows.number_names
    known = {client: mine for client, mine in sites.judged.items() if len(mine) >= ROWS}
    if len(names) < 2 or len(known) < 2:
        return
    with np.errstate(all="ignore"):
        middles = np.array([_quantile(sites.rows.numbers[mine], 0.5) for mine in known.values()])
        low = np.array([_quantile(sites.rows.numbers[mine], 0.05) for mine in known.values()])
        high = np.array([_quantile(sites.rows.numbers[mine], 0.95) for mine in known.values()])
    for number, client in enumerate(known):
        others = np.arange(len(known)) != number
        floor, ceiling = low[others].min(axis=0), high[others].max(axis=0)
        odd = np.flatnonzero((high[number] < floor) | (low[number] > ceiling))
        for a, b in combinations(odd.tolist(), 2):
            if all(floor[y] <= middles[number, x] <= ceiling[y] for x, y in ((a, b), (b, a))):
                yield sites.of(
                    [client],
                    names[a],
                    f"it holds what {names[b]!r} holds elsewhere, and {names[b]!r} holds what it holds",
                    "the model learns one column as the other",
                    "rename the two columns in this file",
                )


def _quantile(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], share: float) -> list[float]:
    return [float(np.quantile(known, share)) if len(known := c[~np.isnan(c)]) else np.nan for c in values.T]
