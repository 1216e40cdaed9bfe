"""What methods with a mask for every client share: both sides hold it, and values travel only where it is active.

The first mask follows from the seed, so neither side need send it; later a client sends how its mask changes. A reply
may be lost: the client then goes back to the mask that the server still holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Method, ServerContext, Task
from sparsona.ops.masks import Bits, flipped, pack, scatter, unpack
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The dense global model, the masks of the clients whose mask is not the first one any more, and the models that
    replies under way started from, by round."""

    weights: Vector
    masks: dict[str, Bits]
    past: dict[int, Vector] = field(default_factory=dict)

    def at(self, round: int) -> Vector:
        """The model that was sent in `round`, which is this round or one of those awaited."""
        return self.past.get(round, self.weights)

    def awaited(self, waiting: Mapping[ClientId, int]) -> dict[int, Vector]:
        """The models that replies under way will need."""
        return {round: self.at(round) for round in set(waiting.values())}


@dataclass(frozen=True)
class ClientState:
    """The mask under which the client last trained, and the next one, which its reply of round `sent` announced."""

    mask: Bits
    next: Bits
    sent: int = -1

    def held(self, down: Message, size: int) -> Mask:
        """The mask that the server used for this downlink: the next one only if it has heard of it."""
        if "mask" in down:
            return down.positions("mask").mask()
        return unpack(self.next if down.acked >= self.sent else self.mask, size)


class Masked(Method[ServerState, ClientState], ABC):
    """ClientState k gets the global weights that its mask m_k shows; its model is m_k * w."""

    @abstractmethod
    def first_mask(self, task: Task, client: ClientId) -> Mask:
        """The mask of a client that has not replied yet."""

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, {})

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        first = pack(self.first_mask(task, client))
        return ClientState(first, first)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(values=server.weights[self.mask_of(server, to, context.task)])

    def personal_model(self, client: ClientState, down: Message, local: Local) -> Vector:
        return received(down, client.held(down, local.layout.size))

    def mask_of(self, server: ServerState, client: ClientId, task: Task) -> Mask:
        """The mask of a client as the server knows it."""
        if client in server.masks:
            return unpack(server.masks[client], task.layout.size)
        return self.first_mask(task, client)

    def read(self, server: ServerState, arrival: Arrival, task: Task) -> tuple[Mask, Mask]:
        """The mask under which the client has trained, and its next one."""
        mask = self.mask_of(server, arrival.client, task)
        return mask, flipped(mask, arrival.message.positions("change")) if "change" in arrival.message else mask


def received(down: Message, mask: Mask) -> Vector:
    """The sparse model of a downlink."""
    return scatter(mask, down.vector("values", int(np.count_nonzero(mask))))
