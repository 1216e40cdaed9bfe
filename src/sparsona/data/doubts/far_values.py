"""A few values that stand alone, far from all others: a slip of the keyboard, a sum below the column, a code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsona.data.dataset import Array, Indices
from sparsona.data.doubts import DOUBTS, Doubt, Sites

LEAST, FAR, ALONE, SHARE = 20, 50, 10, 0.02
"""Known values to judge by; distance from the median in units of where nine tenths are; how much nearer all others must
be; the largest share of the rows. Long tails (lognormal, money) thin out gradually and stay below these."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for values that are far from all others."""
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
        yield Doubt(
            sites.where(odd),
            name,
            len(odd),
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
