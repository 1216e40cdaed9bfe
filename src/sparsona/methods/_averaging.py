"""What methods with one averaged model share: its state, and the mean of the replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ServerContext
from sparsona.methods._personal import with_prior
from sparsona.methods._server import ServerStep
from sparsona.ops.robust import PATTERN, merged
from sparsona.training.local import Local
from sparsona.training.optimizer import EMPTY, Moments

MergeRule: TypeAlias = Annotated[
    str, Field(pattern=PATTERN, description="how replies become one: mean (by examples), median, trimmed:SHARE or krum")
]
"""How replies become one vector."""


@dataclass(frozen=True)
class ServerState:
    """The global model w, and what the server's step remembers."""

    weights: Vector
    moments: Moments = EMPTY

    def moved(self, update: Vector, step: ServerStep) -> ServerState:
        """After a step for the clients' mean update."""
        way, moments = step.direction(update, self.moments)
        return ServerState(self.weights + way, moments)


def received(down: Message, local: Local, prior: bool = False) -> Vector:
    """The global model of this downlink, with the client's log prior if that is asked for."""
    return with_prior(down.vector("weights", local.layout.size), local, prior)


def mean_weights(arrivals: Sequence[Arrival], context: ServerContext, rule: str = "mean") -> Vector:
    """sum n_k w_k / sum n_k over the clients that answered, or what another rule makes of their models."""
    size = context.task.layout.size
    return merged(rule, ((a.message.examples(), a.message.vector("weights", size)) for a in arrivals))


def averaged(
    server: ServerState, arrivals: Sequence[Arrival], context: ServerContext, rule: str, step: ServerStep
) -> ServerState:
    """The server after a step towards the mean of the models that came."""
    mean = mean_weights(arrivals, context, rule)
    return ServerState(mean) if step.is_plain else server.moved(mean - server.weights, step)
