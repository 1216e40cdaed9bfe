"""FedProto: Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous
Clients", AAAI 2022. Models stay at home; clients send the mean embedding of each class, and are pulled to the means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.ops.class_means import ClassMeans, NearestMean
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """The client's model, which never leaves it."""

    weights: Vector


@METHODS.add
@dataclass(frozen=True)
class FedProto(Method[ClassMeans, ClientState]):
    """Only prototypes travel: the mean embedding of each class, which every client's embeddings are pulled towards."""

    private: ClassVar[tuple[str, ...]] = ("weights",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"
    needs_classes: ClassVar[str] = "fedproto has a prototype per class"
    no_budget: ClassVar[str] = "fedproto sends mean embeddings and counts of its rows"

    lam: float = option(1.0, "strength of the pull towards the global prototypes", ge=0)

    def start_server(self, task: Task) -> ClassMeans:
        return ClassMeans.none(task.classes, task.layout.width)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial)

    def send(self, server: ClassMeans, to: ClientId, context: ServerContext) -> Message:
        return Message(**server.parts())

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        prototypes = read(down, local.task)

        def pull(outputs: torch.Tensor, embeddings: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return self.lam * prototypes.strays(embeddings, targets)

        weights = local.train(state.weights, loss=pull).weights
        own, counts = local.class_means(weights)
        reply = Message(**own.parts(), counts=counts)
        return Fit(ClientState(weights), reply, NearestMean(weights, prototypes))

    def aggregate(self, server: ClassMeans, arrivals: Sequence[Arrival], context: ServerContext) -> ClassMeans:
        own = ((read(a.message, context.task), a.message) for a in arrivals)
        return server.updated((means, message.vector("counts", len(means.rows))) for means, message in own)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> NearestMean:
        return NearestMean(state.weights, read(down, local.task))


def read(message: Message, task: Task) -> ClassMeans:
    """The prototypes of a message."""
    return ClassMeans.read(message, task.classes, task.layout.width)
