"""Summaries of the clients' scores. All clients are measured at the same points."""

import math
from collections.abc import Mapping

from sparsona.method import ClientId

POINTS = ("pre", "post", "ft")
"""`pre`: the model as assembled, before local training; `post`: after it; `ft`: `pre` and an epoch of training."""


def summarise(
    scores: Mapping[ClientId, float], sizes: Mapping[ClientId, int], higher_is_better: bool = True
) -> dict[str, float | None]:
    """Return mean over clients, mean over test samples, bottom decile ``sorted[floor(C / 10)]``, worst client.

    Clients without a score (no test samples, no labels) do not count.

    >>> summarise({"a": 0.5, "b": 1.0}, {"a": 30, "b": 10})
    {'mean': 0.75, 'weighted': 0.625, 'bottom_decile': 0.5, 'worst': 0.5}
    """
    known = {client: score for client, score in sorted(scores.items()) if not math.isnan(score)}
    if not known:
        return {"mean": None, "weighted": None, "bottom_decile": None, "worst": None}
    worst_first = sorted(known.values(), reverse=not higher_is_better)
    total = sum(sizes[client] for client in known)
    return {
        "mean": sum(known.values()) / len(known),
        "weighted": sum(score * sizes[client] for client, score in known.items()) / total if total else None,
        "bottom_decile": worst_first[len(worst_first) // 10],
        "worst": worst_first[0],
    }
