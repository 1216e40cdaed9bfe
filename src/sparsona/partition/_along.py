"""Splits along a column: by time, the last rows are set aside; by group, whole groups are."""

from __future__ import annotations

import numpy as np

from sparsona.data.dataset import Array, Indices
from sparsona.data.schema.roles import Along


def set_aside_along(
    part: Indices, values: Array, along: Along, count: int, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """(what stays, about `count` samples of `part`); either is empty where the column does not allow a split.

    By time the rows after the cut are set aside; rows of one time stay together, and rows that lie less than the gap
    before the cut are in neither part. By group the groups are drawn at random until they hold `count` samples.

    >>> times = np.array([5.0, 1.0, 2.0, 3.0, 4.0])
    >>> set_aside_along(np.arange(5), times, Along("time", "t", gap=1.5), 2, np.random.default_rng(0))
    (array([1, 2]), array([0, 4]))
    """
    if along.by == "time":
        return _by_time(part, values[part], along.gap, count)
    return _by_group(part, values[part], count, rng)


def _by_time(part: Indices, times: Array, gap: float, count: int) -> tuple[Indices, Indices]:
    if count < 1:
        return part, part[:0]
    cut = np.sort(times)[len(times) - count]
    return part[times < cut] if gap <= 0 else part[times <= cut - gap], part[times >= cut]


def _by_group(part: Indices, groups: Array, count: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    names, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if count < 1 or len(names) < 2:
        return part, part[:0]
    drawn = rng.permutation(len(names))[:-1]
    before = np.concatenate([[0], np.cumsum(sizes[drawn])[:-1]])
    aside = np.isin(number, drawn[before < count])
    return part[~aside], part[aside]
