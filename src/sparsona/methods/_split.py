"""What methods share whose model has two parts: one is averaged, the other never leaves the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, Fit
from sparsona.methods._personal import Personal
from sparsona.methods._server import ServerStep
from sparsona.ops.parts import joined
from sparsona.ops.robust import merged
from sparsona.training.local import Local
from sparsona.training.optimizer import EMPTY, Moments


@dataclass(frozen=True)
class ServerState:
    """The shared part, and what the server's step remembers."""

    shared: Vector
    moments: Moments = EMPTY


@dataclass(frozen=True)
class ClientState:
    """The client's own part, and the running mean of its models."""

    kept: Vector
    mean: Vector | None = None


def assembled(state: ClientState, down: Message, shared: Mask) -> Vector:
    """The client's model: the part that came, and its own."""
    return joined(shared, down.vector("shared", int(shared.sum())), state.kept)


def answer(state: ClientState, trained: Vector, shared: Mask, local: Local, personal: Personal) -> Fit[ClientState]:
    """The shared part goes back, the other one is kept."""
    mean = personal.mean(state.mean, trained)
    reply = Message(shared=trained[shared], examples=local.examples)
    return Fit(ClientState(trained[~shared], mean), reply, personal.model(mean, trained))


def mean_shared(
    server: ServerState,
    arrivals: Sequence[Arrival],
    rule: str,
    step: ServerStep,
    weight: Callable[[Message], float] = Message.examples,
) -> ServerState:
    """After a step towards the mean of the shared parts, by examples unless another `weight` is given; or towards what
    another rule makes of them."""
    size = len(server.shared)
    mean = merged(rule, ((weight(a.message), a.message.vector("shared", size)) for a in arrivals))
    if step.is_plain:
        return ServerState(mean)
    way, moments = step.direction(mean - server.shared, server.moments)
    return ServerState(server.shared + way, moments)
