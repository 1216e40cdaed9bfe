"""When and where models are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sparsona.options import option
from sparsona.personal.kept import KeepName


@dataclass(frozen=True)
class Evaluation:
    """When and where models are measured."""

    every: int = option(1, "evaluate every N rounds (0: only after the last)", ge=0)
    post: Literal["everyone", "participants"] = option(
        "everyone", "clients measured after training; everyone trains clients that were not sampled just for that"
    )
    ft: bool = option(False, "also measure the pre model after one epoch of training")
    keep: KeepName = option(
        "last",
        "model that a client keeps: of the last round, the best validation score's (best), or its own best one's",
    )
    patience: int = option(0, "stop after N evaluations without a better mean validation score (0: never)", ge=0)

    def due(self, round: int, rounds: int) -> bool:
        """Whether models are measured in this round, counted from 0."""
        return round + 1 == rounds or (self.every > 0 and (round + 1) % self.every == 0)


EVERY_ROUND, LAST_ROUND = Evaluation(), Evaluation(every=0)
