"""What methods with one averaged model share: reading it from a downlink, and the step towards the replies' mean."""

from __future__ import annotations

from collections.abc import Sequence

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ServerContext
from sparsona.ops.robust import MergeRule, merged
from sparsona.ops.server import ServerState, ServerStep
from sparsona.training.local import Local


def received(down: Message, local: Local) -> Vector:
    """The global model of this downlink."""
    return down.vector("weights", local.layout.size)


def mean_weights(arrivals: Sequence[Arrival], context: ServerContext, rule: MergeRule = "mean") -> Vector:
    """sum n_k w_k / sum n_k over the clients that answered, or what another rule makes of their models."""
    size = context.task.layout.size
    return merged(rule, ((a.message.examples(), a.message.vector("weights", size)) for a in arrivals))


def averaged(
    server: ServerState, arrivals: Sequence[Arrival], context: ServerContext, rule: MergeRule, step: ServerStep
) -> ServerState:
    """The server after a step towards the mean of the models that came."""
    return server.towards(mean_weights(arrivals, context, rule), step)
