"""Rows of one person, session or device on both sides of the split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsona.data.dataset import Array
from sparsona.data.doubts import DOUBTS, Doubt, Sites
from sparsona.data.schema.columns import as_option
from sparsona.data.schema.identifiers import names_somebody

GROUPS, FEW, LARGE = 10, 1.1, 100
"""Persons to judge by, and rows per person from which on and up to which a column names persons."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for test rows of a person whose other rows are trained on."""
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
            yield Doubt(
                sites.where(rows),
                name,
                len(rows),
                f"these test rows have the {name} of a training row ({persons} of them in {len(known)} rows)",
                "the model is tested on persons that it knows, so scores are too good for new ones",
                f"pass --split {as_option('group:' + name)}",
            )
