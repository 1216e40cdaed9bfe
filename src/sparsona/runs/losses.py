"""Whether training losses rose: models that run away without leaving the finite numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median_low
from typing import Protocol

RISE = 1.1
"""A loss has risen if it is so many times what the run began with: less is noise of the batches."""


class HasLoss(Protocol):
    """What is read of a client's record."""

    client: str
    loss: float


@dataclass
class Losses:
    """The median training loss of the first round that trained, and the last loss of every client."""

    first: float = math.nan
    last: dict[str, float] = field(default_factory=dict)

    def add(self, lines: Iterable[HasLoss]) -> None:
        """Take in the records of a round, the rounds in their order."""
        found = {line.client: line.loss for line in lines if math.isfinite(line.loss)}
        if found and not self.last:
            self.first = median_low(found.values())
        self.last |= found

    def told(self) -> dict[str, float]:
        """What summary.json says of them; nothing where nobody has trained.

        Clients of a later round begin with a model that may have run away already, so that all are compared with the
        first round and nobody with its own beginning.
        """
        if not self.last:
            return {}
        rose = sum(loss > RISE * self.first for loss in self.last.values())
        return {
            "clients": len(self.last),
            "rose": rose,
            "first": self.first,
            "last": median_low(self.last.values()),
        }
