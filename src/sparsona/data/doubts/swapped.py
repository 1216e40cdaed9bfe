"""Two columns of numbers that one client has in each other's place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from sparsona.data.doubts import DOUBTS, Doubt, Sites

ROWS = 10


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for a client with two columns outside the others' ranges, each inside the range of the other column."""
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
                yield Doubt(
                    sites.called([client]),
                    names[a],
                    len(sites.clients[client]),
                    f"it holds what {names[b]!r} holds elsewhere, and {names[b]!r} holds what it holds",
                    "the model learns one column as the other",
                    "rename the two columns in this file",
                )


def _quantile(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], share: float) -> list[float]:
    return [float(np.quantile(known, share)) if len(known := c[~np.isnan(c)]) else np.nan for c in values.T]
