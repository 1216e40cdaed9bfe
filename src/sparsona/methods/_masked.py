"""What methods with one mask per client share: both sides hold it, and only active values travel.

The first mask follows from the seed, so neither side sends it; later a client sends how its mask changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sparsona.by_client import ByClient
from sparsona.message import Mask, Message, Vector
from sparsona.method import Arrival, ClientId, Method, Task
from sparsona.ops.masks import (
    Bits,
    flipped,
    pack,
    scatter,
    unpack,
)
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The dense global model, and the changed masks of clients."""

    weights: Vector
    masks: ByClient[Bits]

    def mask(self, client: str, first: Mask) -> Mask:
        """Return the mask of a client: the `first` one until it has sent a change."""
        return unpack(self.masks[client], len(first)) if client in self.masks else first


@dataclass(frozen=True)
class ClientState:
    """The client's mask."""

    mask: Bits


def mask_of(state: ClientState, down: Message, size: int) -> Mask:
    """Return the mask of this downlink's values: the client's own, unless the downlink brings one."""
    return down.positions("mask").mask() if "mask" in down else unpack(state.mask, size)


def received(down: Message, mask: Mask) -> Vector:
    """Return the sparse model of a downlink."""
    return scatter(mask, down.vector("values", int(np.count_nonzero(mask))))


@dataclass(frozen=True)
class Masked(Method[ServerState, ClientState], ABC):
    """A method with one mask per client, and a dense global model on the server."""

    @abstractmethod
    def first_mask(self, task: Task, client: ClientId) -> Mask:
        """Return a client's mask before its first turn, which follows from the seed."""

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, ByClient())

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(pack(self.first_mask(task, client)))

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return received(down, mask_of(state, down, local.layout.size))


def next_mask_of(arrival: Arrival, mask: Mask) -> Mask:
    """Return the mask after the change in a reply."""
    return flipped(mask, arrival.message.positions("change")) if "change" in arrival.message else mask
