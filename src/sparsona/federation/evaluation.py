"""When and where models are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True)
class Evaluation:
    """When and where models are measured.

    Every `every` rounds and after the last (0: only then). `post` of a client that did not take part is what it would
    be had it been asked, and costs a training: `participants` leaves it out, except after the last round. `ft` adds
    the third point.
    """

    every: Annotated[int, Field(ge=0)] = 1
    post: Literal["everyone", "participants"] = "everyone"
    ft: bool = False

    def due(self, round: int, rounds: int) -> bool:
        """Whether models are measured in this round, counted from 0."""
        return round + 1 == rounds or (self.every > 0 and (round + 1) % self.every == 0)
