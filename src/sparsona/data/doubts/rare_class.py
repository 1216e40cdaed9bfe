"""A class that so few rows have that accuracy cannot tell a model from a constant answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsona.data.doubts import DOUBTS, Doubt, Sites

COMMON = 0.9
"""The share of the most frequent class from which on a constant answer looks good."""


@DOUBTS.add
def find(sites: Sites) -> Iterator[Doubt]:
    """Look for a class that nine rows of ten have, where accuracy decides."""
    if sites.classes is None or sites.metric != "accuracy":
        return
    mine = sites.classes[sites.used]
    names, counts = np.unique(mine, return_counts=True)
    share = counts.max() / len(mine)
    if len(names) < 2 or share < COMMON:
        return
    usual = str(names[counts.argmax()])
    yield Doubt(
        sites.where(sites.used),
        sites.target,
        len(mine) - int(counts.max()),
        f"these have another class than {usual!r}, so always saying {usual!r} is {100 * share:.1f} % accurate",
        "accuracy cannot tell a good model from that",
        "pass --metric auc or --metric sensitivity, and try --class-weights balanced",
    )
