"""Summaries of the clients' scores and training losses. All clients are measured at the same points.

Rising losses reveal models that diverge while all numbers are still finite.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Protocol

from sparsona.method import ClientId
from sparsona.words import counted

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


RISE = 1.1  # a loss has risen if it exceeds the run's first losses by this factor; less is noise of the batches
EXPLODED = 10.0  # a loss has exploded if it exceeds the first losses of the client and of the run by this factor


def exploded(loss: Mapping[str, float]) -> str:
    """Return a sentence about losses of which one has exploded; else an empty text.

    >>> exploded({"clients": 4, "rose": 1, "exploded": 1, "first": 0.69, "last": 0.7})
    'the training loss exploded for 1 of 4 clients: the run has diverged; lower training.lr, ...'
    """
    if not loss.get("exploded"):
        return ""
    who = f"{loss['exploded']:g} of {counted(int(loss['clients']), 'client')}"
    return f"the training loss exploded for {who}: the run has diverged; lower training.lr, or set it to auto"


class HasLoss(Protocol):
    """The fields that are read of a client's record."""

    client: str
    loss: float


@dataclass
class Losses:
    """The median training loss of the first round that trained, and the first and last loss of every client."""

    first: float = math.nan
    own: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    def add(self, lines: Iterable[HasLoss]) -> None:
        """Add the records of a round; rounds come in their order."""
        found = {line.client: line.loss for line in lines if math.isfinite(line.loss)}
        if found and not self.last:
            self.first = median_low(found.values())
        self.own = found | self.own
        self.last |= found

    def told(self) -> dict[str, float]:
        """Return the entry of summary.json; empty if no client has trained.

        All losses are compared with the first round, because clients that join later may start from a model that has
        already diverged. If a client's loss `exploded`, the run has diverged.
        """
        if not self.last:
            return {}
        rose = sum(loss > RISE * self.first for loss in self.last.values())
        exploded = sum(loss > EXPLODED * max(self.first, self.own[client]) for client, loss in self.last.items())
        return {
            "clients": len(self.last),
            "rose": rose,
            "exploded": exploded,
            "first": self.first,
            "last": median_low(self.last.values()),
        }
