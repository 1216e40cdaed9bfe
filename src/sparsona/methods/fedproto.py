"""FedProto: Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous
Clients", AAAI 2022. Models stay at home; clients send the mean embedding of each class, and are pulled to the means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from sparsona.data.dataset import Array, Indices
from sparsona.errors import InputError, WireError
from sparsona.layout import Forward
from sparsona.message import Message, Positions, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class Prototypes:
    """Predicts the class of the nearest prototype to the input's embedding; without prototypes, by the net."""

    weights: Vector
    prototypes: Array
    known: Indices
    classes: int

    def predict(self, forward: Forward, inputs: torch.Tensor) -> torch.Tensor:
        """Return minus the squared distances."""
        if not len(self.known):
            return forward(self.weights, inputs)
        centres = torch.tensor(self.prototypes, device=inputs.device)
        out = torch.full((len(inputs), self.classes), -1e30, device=inputs.device)
        out[:, torch.tensor(self.known)] = -torch.cdist(forward.embed(self.weights, inputs), centres).square()
        return out


@dataclass(frozen=True)
class ServerState:
    """The global prototypes, one row per class; `known` are the classes that have one."""

    prototypes: Array
    known: Positions


@dataclass(frozen=True)
class ClientState:
    """The client's model, which never leaves it."""

    weights: Vector


@METHODS.add
@dataclass(frozen=True)
class FedProto(Method[ServerState, ClientState]):
    """Only prototypes travel: the mean embedding of each class, which every client's embeddings are pulled towards."""

    private: ClassVar[tuple[str, ...]] = ("weights",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    lam: float = option(1.0, "strength of the pull towards the global prototypes", ge=0)

    def start_server(self, task: Task) -> ServerState:
        if not task.classes:
            raise InputError("fedproto has a prototype per class: it needs a data set with classes")
        none = Positions(task.classes, np.zeros(0, np.int64))
        return ServerState(np.zeros((task.classes, task.layout.width), np.float32), none)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(known=server.known, prototypes=server.prototypes[server.known.indices].ravel())

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        model = self._model(state.weights, down, local)
        known, table = torch.tensor(model.known), torch.zeros(model.classes, local.layout.width)
        table[known] = torch.tensor(model.prototypes)
        pulls = self.lam * torch.bincount(known, minlength=model.classes)

        def pull(outputs: torch.Tensor, embeddings: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            near = table.to(targets.device)[targets]
            return pulls.to(targets.device)[targets] * (embeddings - near).square().mean(1)

        weights = local.train(state.weights, loss=pull).weights
        labels, embeddings = local.targets(), local.embed(weights, local.inputs()).cpu().numpy()
        counts = np.bincount(labels, minlength=model.classes)
        own = np.flatnonzero(counts >= local.least_rows)
        means = [embeddings[labels == one].mean(0) for one in own]
        reply = Message(
            counts=Sparse(model.classes, own, counts[own].astype(np.float32)),
            prototypes=np.concatenate([np.zeros(0, np.float32), *means]),
        )
        return Fit(ClientState(weights), reply, self._model(weights, down, local))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        width, counts = context.task.layout.width, np.zeros(len(server.prototypes))
        sums = np.zeros((len(counts), width))
        for arrival in arrivals:
            told = arrival.message.sparse("counts", len(counts))
            if not (told.values > 0).all():
                raise WireError("a reply counts a class with no example")
            means = arrival.message.vector("prototypes", len(told.indices) * width)
            sums[told.indices] += told.values[:, None] * means.reshape(-1, width).astype(np.float64)
            counts[told.indices] += told.values
        found, prototypes = counts > 0, server.prototypes.copy()
        prototypes[found] = sums[found] / counts[found, None]
        found[server.known.indices] = True
        return ServerState(prototypes, Positions(len(found), np.flatnonzero(found)))

    def queries(self, steps: Steps) -> Queries:
        raise InputError("fedproto sends mean embeddings and counts of its rows: it has no private form")

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Prototypes:
        return self._model(state.weights, down, local)

    def _model(self, weights: Vector, down: Message, local: Local) -> Prototypes:
        known = down.positions("known", local.task.classes).indices
        found = down.vector("prototypes", len(known) * local.layout.width).reshape(-1, local.layout.width)
        return Prototypes(weights, found, known, local.task.classes)
