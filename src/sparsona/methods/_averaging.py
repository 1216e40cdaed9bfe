"""What methods with one averaged model share: its state, and the mean of the replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ServerContext
from sparsona.ops.robust import PATTERN, merged
from sparsona.training.local import Local

MergeRule: TypeAlias = Annotated[
    str, Field(pattern=PATTERN, description="how replies become one: mean (by examples), median, trimmed:SHARE or krum")
]
"""How replies become one vector."""


@dataclass(frozen=True)
class ServerState:
    """The global model w."""

    weights: Vector


def received(down: Message, local: Local) -> Vector:
    """The global model of this downlink."""
    return down.vector("weights", local.layout.size)


def mean_weights(arrivals: Sequence[Arrival], context: ServerContext, rule: str = "mean") -> Vector:
    """sum n_k w_k / sum n_k over the clients that answered, or what another rule makes of their models."""
    size = context.task.layout.size
    return merged(rule, ((a.message.examples(), a.message.vector("weights", size)) for a in arrivals))
