"""A client whose two classes are exchanged: what is 1 elsewhere is 0 there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.doubts import DOUBTS, Doubt, Sites

ROWS, AGAINST, CLEAR = 10, -0.8, 2.5
"""Rows of each class to judge by; the cosine between the client's and the others' difference of classes; the length of
both differences in standard errors of chance."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for a client whose classes differ in all columns in the other direction than everywhere else."""
    if sites.classes is None or len(sites.rows.number_names) < 2 or len(sites.compared) < 3:
        return
    names = np.unique(sites.classes[sites.used])
    if len(names) != 2:
        return
    second = sites.classes == names[1]
    found = {client: difference(sites.rows.numbers[mine], second[mine]) for client, mine in sites.judged.items()}
    known = {client: value for client, value in found.items() if value is not None}
    for client, mine in known.items():
        others = [value for other, value in known.items() if other != client]
        if len(others) < 2:
            return
        usual = np.mean(others, axis=0)
        lengths = np.linalg.norm(mine), np.linalg.norm(usual)
        if min(lengths) < CLEAR * len(usual) ** 0.5 or mine @ usual > AGAINST * lengths[0] * lengths[1]:
            continue
        yield Doubt(
            sites.called([client]),
            sites.target,
            len(sites.clients[client]),
            f"{names[0]!s} and {names[1]!s} seem to be exchanged: all columns differ in the other direction",
            "the client teaches the others the opposite",
            "check which class is which in this file",
        )


def difference(values: Array, second: Array) -> Array | None:
    """The difference of the two classes' means by column, in standard errors; None where a class has few rows."""
    if min(second.sum(), (~second).sum()) < ROWS:
        return None
    parts = []
    for column in values.T:
        one, other = (column[side & ~np.isnan(column)] for side in (~second, second))
        if min(len(one), len(other)) < ROWS:
            parts.append(0.0)
            continue
        error = (one.var() / len(one) + other.var() / len(other)) ** 0.5
        parts.append((other.mean() - one.mean()) / error if error else 0.0)
    return np.array(parts)
