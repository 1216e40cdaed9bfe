"""A column that a client does not have: all cells empty, or the same number in every row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.doubts import DOUBTS, Doubt, Sites
from sparsona.data.doubts.missing_codes import codes_in
from sparsona.data.schema.columns import as_option

ROWS, VARIED, KNOWN = 10, 10, 0.5
"""Rows of a client to judge by; different values that others have; the share of rows in which others know a value."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for columns that are empty, or empty or constant at some clients only."""
    for name, values, known in _columns(sites):
        drop = f"pass --drop {as_option(name)}"
        if not known[sites.used].any():
            called, rows = sites.called(list(sites.clients)), len(sites.used)
            yield Doubt(called, name, rows, "no row has a value", "nothing can be learnt from it", drop)
            continue
        judged = {client: mine for client, mine in sites.compared.items() if len(mine) >= ROWS}
        lacking = [client for client, mine in judged.items() if not known[mine].any()]
        others = [mine for client, mine in judged.items() if client not in lacking]
        if lacking and others and known[np.concatenate(others)].mean() >= KNOWN:
            yield Doubt(
                sites.called(lacking),
                name,
                sum(len(judged[client]) for client in lacking),
                "no row has a value, as other clients' rows have",
                "the missing value tells the client, not the row",
                f"{drop}, or fill it in",
            )
        if name not in sites.rows.categories:
            yield from _stuck(sites, name, values, [client for client in judged if client not in lacking])


def _stuck(sites: Sites, name: str, values: Array, clients: Sequence[str]) -> Iterator[Doubt]:
    """A column of numbers that is constant at some clients and varies at the others."""
    taken = {client: values[sites.judged[client]] for client in clients}
    held = {client: known[~np.isnan(known)] for client, known in taken.items()}
    stuck = [client for client, known in held.items() if len(known) >= ROWS and (known == known[0]).all()]
    free = [known for client, known in held.items() if client not in stuck]
    if not stuck or len(stuck) > len(free) or any(len(np.unique(known)) < VARIED for known in free):
        return
    first = float(held[stuck[0]][0])
    if first in codes_in(values[sites.used]):  # told already
        return
    yield Doubt(
        sites.called(stuck),
        name,
        sum(len(sites.clients[client]) for client in stuck),
        f"the value is {first:g} in every row, and varies at other clients",
        "a number that stands for a missing one is learnt as a measurement",
        f"leave these cells empty where it is unknown, or pass --drop {as_option(name)}",
    )


def _columns(sites: Sites) -> Iterator[tuple[str, Array, Array]]:
    for name, values in sites.numbers():
        yield name, values, ~np.isnan(values)
    for name, names in sites.rows.categories.items():
        yield name, names, names != ""
