"""The server of FedAvg, which many methods share: its model goes out, the weighted mean of the replies is the next."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Method, ServerContext, Task
from sparsona.ops.mean import weighted_mean
from sparsona.training.local import Local

C = TypeVar("C")


@dataclass(frozen=True)
class ServerState:
    """The global model."""

    weights: Vector


class Averaging(Method[ServerState, C], ABC):
    """w <- sum n_k w_k / sum n_k over whoever answered. What is left to say is what a client does with w."""

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size = context.task.layout.size
        return ServerState(weighted_mean((a.message.examples(), a.message.vector("weights", size)) for a in arrivals))


def received(down: Message, local: Local) -> Vector:
    """The global model of this downlink."""
    return down.vector("weights", local.layout.size)
