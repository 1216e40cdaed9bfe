"""A client with one class only, and a class that hardly any row has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsona.data.doubts import DOUBTS, Doubt, Sites

SLIP, OTHERS = 3, 20
"""Rows up to which a class may be a slip of the keyboard, and rows of each of the two largest classes beside it."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for clients with one class, and for classes of few rows."""
    if sites.classes is None:
        return
    label = sites.classes
    alone = {c: mine for c, mine in sites.compared.items() if len(mine) and (label[mine] == label[mine[0]]).all()}
    if alone:
        held = sorted({str(label[mine[0]]) for mine in alone.values()})
        yield Doubt(
            sites.called(list(alone)),
            sites.target,
            sum(len(mine) for mine in alone.values()),
            f"all rows have the class {' or '.join(map(repr, held[:2]))}",
            "a constant answer is always right there, so these scores say nothing",
            "leave the file out, or judge by the score over all clients' rows together",
        )
    names, place, counts = np.unique(label[sites.used], return_inverse=True, return_counts=True)
    if len(names) < 3 or np.sort(counts)[-2] < OTHERS:
        return
    for k in np.flatnonzero(counts <= SLIP).tolist():
        rows = sites.used[place == k]
        yield Doubt(
            sites.where(rows),
            sites.target,
            len(rows),
            f"the class {str(names[k])!r} is in no other row: likely a slip",
            "it cannot be both learnt and tested",
            "correct it, or leave the line out",
        )
