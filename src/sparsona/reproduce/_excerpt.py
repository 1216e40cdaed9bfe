"""Some samples of a data set as a data set of its own, so that a small machine can test as often as it trains."""

from __future__ import annotations

import numpy as np

from sparsona.data import describe, load, roots

AS_IT_IS = {"scaling": "none"}
"""The `columns` of an excerpt: its images are normalised by their data set's constants or not at all."""


def excerpt(data: str, count: int) -> str:
    """Some images of a data set, the same for everyone; made once."""
    path = roots()[0] / "excerpts" / f"{data}-{count}.npz"
    if not path.exists() and describe(data).present:
        whole = load(data)
        chosen = np.sort(np.random.default_rng(0).permutation(len(whole))[:count])
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, x=whole.inputs[chosen], y=whole.targets[chosen])
    return f"npz:{path}"
