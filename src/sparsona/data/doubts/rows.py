"""Doubts about rows: copies, and one person on both sides of the split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsona.data.dataset import Array, Indices
from sparsona.data.doubts import DOUBTS, Doubt, Sites, mixed
from sparsona.data.schema.columns import as_option
from sparsona.data.schema.roles import names_somebody

LEAST, SHARE, CHANCE = 3, 0.01, 10
"""Least rows and least share of rows for a warning about copies, and the least ratio to the number expected by chance.
Short rows of whole numbers are often equal without being copies.
"""


@DOUBTS.named("copies")
def copies(sites: Sites) -> Iterator[Doubt]:
    """Rows that are there twice, at one client or at two; and equal rows with different classes."""
    used, keys = sites.used, sites.keys
    label = _labels(sites)
    whole = mixed(keys, label)
    by_chance = len(used) * (len(used) - 1) / 2 * sites.alike
    site = sites.site[used] if sites.natural else np.zeros(len(used), np.int64)
    within, across = twins(whole[used], site)
    enough = max(LEAST, SHARE * len(used), CHANCE * by_chance)
    if len(within) >= enough:
        tested = _tested(sites, whole)
        why = f"{tested} test rows are training rows, too" if tested else "they count twice"
        fix = "remove them, or pass --split group:COLUMN with a column that names the patient or the visit"
        yield sites.at(used[within], "", "copies of other rows of the file", why, fix)
    if len(across) >= max(LEAST, CHANCE * by_chance):
        tested = _tested(sites, whole)
        why = "one client trains on rows that another is tested on" if tested else "they count twice"
        yield sites.at(used[across], "", "two clients have these rows", why, "remove one of both")
    if sites.classes is not None:
        torn = contradicting(keys[used], label[used])
        if len(torn) >= max(LEAST, SHARE * len(used), CHANCE * by_chance):
            yield sites.at(
                used[torn],
                sites.target,
                "equal rows with different classes",
                "no model can be right for both",
                "correct the classes, or add the column that tells these rows apart",
            )


def _labels(sites: Sites) -> Array:
    if sites.classes is not None:
        return np.unique(sites.classes, return_inverse=True)[1].astype(np.float64)
    return np.asarray(sites.rows.target[:, 0], np.float64)


def twins(keys: Array, site: Indices) -> tuple[Indices, Indices]:
    """Places of rows that repeat an earlier one of their site, and of rows that another site has, too."""
    _, row = np.unique(keys, return_inverse=True)
    pairs = row * (int(site.max()) + 1) + site
    _, first = np.unique(pairs, return_index=True)
    repeated = np.setdiff1d(np.arange(len(keys)), first)
    sites_of = np.bincount(row[first], minlength=int(row.max()) + 1)
    return repeated, np.flatnonzero(sites_of[row] > 1)


def contradicting(keys: Array, label: Array) -> Indices:
    """Places of rows whose features another row has with another label."""
    _, row = np.unique(keys, return_inverse=True)
    low, high = np.full(int(row.max()) + 1, np.inf), np.full(int(row.max()) + 1, -np.inf)
    np.minimum.at(low, row, label)
    np.maximum.at(high, row, label)
    return np.flatnonzero(low[row] < high[row])


def _tested(sites: Sites, whole: Array) -> int:
    """How many test rows are among the training rows of any client."""
    train = np.concatenate([split.train for split in sites.splits.values()])
    test = np.concatenate([split.test for split in sites.splits.values()])
    return int(np.isin(whole[test], whole[train]).sum())


GROUPS, FEW, LARGE = 10, 1.1, 100
"""Least persons, and the range of rows per person for a column that names persons."""


@DOUBTS.named("same-person")
def same_person(sites: Sites) -> Iterator[Doubt]:
    """Rows of one person, session or device on both sides of the split."""
    if sites.by != "random":
        return
    inside = [name for name in sites.rows.order if names_somebody(name)]
    columns: dict[str, Array] = {name: sites.codes(name) for name in inside} | dict(sites.rows.aside)
    for name, values in columns.items():
        known = values[sites.used]
        known = known[known != ""] if known.dtype.kind == "U" else known[~np.isnan(known)]
        persons = len(np.unique(known))
        if persons < GROUPS or not FEW * persons <= len(known) <= LARGE * persons:
            continue
        shared = [s.test[np.isin(values[s.test], values[s.train])] for s in sites.splits.values()]
        rows = np.concatenate(shared)
        if len(rows):
            yield sites.at(
                rows,
                name,
                f"these test rows have the {name} of a training row ({persons} of them in {len(known)} rows)",
                "the model is tested on persons that it knows, so scores are too good for new ones",
                f"pass --split {as_option('group:' + name)}",
            )
