"""A column that some clients measure in another unit: grams and kilograms, Celsius and Fahrenheit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.doubts import DOUBTS, Doubt, Sites

ROWS, FACTOR, ALIKE = 10, 8.0, 3.0
"""Rows of a client to judge by; the smallest factor between units; how far the relative spreads may differ, which a
change of unit leaves as it is."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for clients whose values are a multiple of all others' values."""
    for name, values in sites.numbers():
        found = {client: quantiles(values[mine]) for client, mine in sites.judged.items()}
        known = {client: three for client, three in found.items() if three is not None}
        split = apart(known)
        if split is None:
            continue
        low, high = split
        few = low if len(low) < len(high) else high
        medians = [np.median([known[client][1] for client in side]) for side in (low, high)]
        rows = np.concatenate([sites.clients[client] for client in few])
        yield Doubt(
            sites.called(few),
            name,
            len(rows),
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
    """Whether one side may be temperatures of the other, of a body or a room."""
    low, middle, high = np.median(celsius, axis=0)
    converted = (np.median(other[:, 1]) - 32) / 1.8
    return bool(low >= 10 and high <= 45 and abs(converted - middle) <= max(high - low, 1))
