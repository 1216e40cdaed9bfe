"""When and where models are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True)
class Evaluation:
    """When and where models are measured.

    `every` is the number of rounds from one evaluation to the next; the last round always has one (0: no other).
    `post` is who is measured after training: everyone, though a client that was not asked must train for it; or the
    participants, and everyone in the last round. `ft` adds a third point: the `pre` model after an epoch of training.
    """

    every: Annotated[int, Field(ge=0)] = 1
    post: Literal["everyone", "participants"] = "everyone"
    ft: bool = False

    def due(self, round: int, rounds: int) -> bool:
        """Whether models are measured in this round, counted from 0."""
        return round + 1 == rounds or (self.every > 0 and (round + 1) % self.every == 0)
