"""The server of FedAvg, which many methods share: its model goes out, the weighted mean of the replies is the next."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from sparsona.local import Local
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Method, Task, Turn
from sparsona.ops.mean import weighted_mean

C = TypeVar("C")


@dataclass(frozen=True)
class Server:
    """The global model."""

    weights: Vector


class Averaging(Method[Server, C], ABC):
    """w <- sum n_k w_k / sum n_k over whoever answered. What is left to say is what a client does with w."""

    def start_server(self, task: Task) -> Server:
        return Server(task.initial)

    def send(self, server: Server, to: ClientId, turn: Turn) -> Message:
        return Message(weights=server.weights)

    def merge(self, server: Server, arrivals: Sequence[Arrival], turn: Turn) -> Server:
        size = turn.task.layout.size
        return Server(weighted_mean((a.message.examples(), a.message.vector("weights", size)) for a in arrivals))


def received(down: Message, local: Local) -> Vector:
    """The global model of this downlink."""
    return down.vector("weights", local.layout.size)
