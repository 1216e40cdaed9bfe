"""A feature that is the target in disguise: a copy, a code of it, or what is written down only after the outcome."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.doubts import DOUBTS, Doubt, Sites
from sparsona.data.schema.columns import as_option

ROWS, OF_A_CLASS, RECALL, CORRELATION = 40, 5, 0.99, 0.9999
"""Rows and rows of a class to judge by; the share of each class that one column must tell."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for features that tell the target of every row."""
    if sites.task == "multilabel" or len(sites.sample) < ROWS:
        return
    for name in sites.rows.order:
        held = sites.codes(name)[sites.sample]
        if sites.classes is not None:
            missing = (sites.rows.categories[name] == "")[sites.sample] if name in sites.rows.categories else None
            what = tells_class(held, sites.classes[sites.sample], missing)
        else:
            what = tells_number(held, sites.rows.target[sites.sample, 0])
        if what:
            yield Doubt(
                sites.called(list(sites.clients)),
                name,
                len(sites.used),
                what,
                "the model copies it, and scores say nothing about rows whose target is unknown",
                f"pass --drop {as_option(name)} if it is not known before the target",
            )


def tells_class(held: Array, classes: Array, missing: Array | None = None) -> str:
    """How a column tells the class of each row; empty where it does not."""
    _, label, counts = np.unique(classes, return_inverse=True, return_counts=True)
    often = counts >= OF_A_CLASS
    if often.sum() < 2 or counts[often].sum() < ROWS:
        return ""
    kept = often[label]
    held, label = held[kept], label[kept]
    lost = np.isnan(held) if missing is None else missing[kept]
    if 0 < lost.sum() < len(lost) and _recalls(lost.astype(np.int64), label, often):
        return "whether it is missing tells the class"
    values, place = np.unique(held, return_inverse=True)
    if len(values) > 1 and len(held) >= OF_A_CLASS * len(values):
        return "each of its values belongs to one class" if _recalls(place, label, often) else ""
    known = ~np.isnan(held)
    order = np.argsort(held[known], kind="stable")
    ranked = label[known][order]
    # Equal values with two labels must not look like one change of class.
    tied = held[known][order][1:] == held[known][order][:-1]
    changes = int((ranked[1:] != ranked[:-1]).sum())
    mixed = int(((ranked[1:] != ranked[:-1]) & tied).sum())
    whole = known.sum() >= RECALL * len(held) and len(np.unique(ranked)) == often.sum()
    return "its size tells the class" if whole and changes + mixed <= often.sum() - 1 + 0.002 * len(ranked) else ""


def _recalls(place: Array, label: Array, often: Array) -> bool:
    """Whether the most frequent class of each value is right for nearly all rows of every class."""
    table = np.zeros((int(place.max()) + 1, len(often)), np.int64)
    np.add.at(table, (place, label), 1)
    right = np.zeros(len(often), np.int64)
    best = table.argmax(axis=1)
    np.add.at(right, best, table[np.arange(len(table)), best])
    return bool((right[often] >= RECALL * table.sum(axis=0)[often]).all())


def tells_number(held: Array, target: Array) -> str:
    """How a column tells a target that is a number; empty where it does not."""
    known = ~np.isnan(held) & ~np.isnan(target)
    x, y = held[known], target[known]
    if len(x) < ROWS or len(np.unique(x)) <= 10 or len(np.unique(y)) <= 10:
        return ""
    if _correlation(x, y) > CORRELATION:
        return "it is the target, but for its unit"
    ranks = (np.unique(values, return_inverse=True)[1].astype(np.float64) for values in (x, y))
    return "it grows with the target, row by row" if _correlation(*ranks) > CORRELATION else ""


def _correlation(x: Array, y: Array) -> float:
    if x.std() == 0 or y.std() == 0:
        return 0.0
    return abs(float(np.corrcoef(x, y)[0, 1]))
