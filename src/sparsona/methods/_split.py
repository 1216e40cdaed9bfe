"""What methods share whose model has two parts: one is averaged, the other never leaves the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, Fit
from sparsona.ops.parts import joined
from sparsona.ops.robust import MergeRule, merged
from sparsona.ops.server import ServerState, ServerStep
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The client's own part."""

    kept: Vector


def assembled(state: ClientState, down: Message, shared: Mask) -> Vector:
    """The client's model: the part that came, and its own."""
    return joined(shared, down.vector("shared", int(shared.sum())), state.kept)


def answer(trained: Vector, shared: Mask, local: Local) -> Fit[ClientState]:
    """The shared part goes back, the other one is kept."""
    return Fit(ClientState(trained[~shared]), Message(shared=trained[shared], examples=local.examples), trained)


def mean_shared(
    server: ServerState,
    arrivals: Sequence[Arrival],
    rule: MergeRule,
    step: ServerStep,
    weight: Callable[[Message], float] = Message.examples,
) -> ServerState:
    """After a step towards the mean of the shared parts, by examples unless another `weight` is given; or towards what
    another rule makes of them."""
    size = len(server.weights)
    mean = merged(rule, ((weight(a.message), a.message.vector("shared", size)) for a in arrivals))
    return server.towards(mean, step)
