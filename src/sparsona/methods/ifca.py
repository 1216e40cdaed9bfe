"""IFCA: Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020. A few
models on the server; each client trains the one that suits its data best, and each model is averaged over its clients.
The model-averaging variant."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sparsona.errors import WireError
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.ops.mean import weighted_mean
from sparsona.ops.mixture import initial_models
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The clusters' models."""

    models: tuple[Vector, ...]


@METHODS.add
@dataclass(frozen=True)
class IFCA(Method[ServerState, None]):
    """Clustered federated learning: each client joins the cluster whose model has the lowest loss on its data."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    clusters: int = option(3, "number of models", ge=1)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(initial_models(task.initial, task.layout, task.chance, self.clusters))

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(**{f"model{j}": model for j, model in enumerate(server.models)})

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        cluster, start = self._best(down, local)
        trained = local.train(start).weights
        return Fit(None, Message(weights=trained, cluster=cluster, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size, models = context.task.layout.size, list(server.models)
        clusters = [a.message.integer("cluster") for a in arrivals]
        if not set(clusters) <= set(range(self.clusters)):
            raise WireError(f"a reply names cluster {max(clusters)}, there are {self.clusters}")
        for cluster in sorted(set(clusters)):
            mine = (a.message for a, c in zip(arrivals, clusters, strict=True) if c == cluster)
            models[cluster] = weighted_mean((m.examples(), m.vector("weights", size)) for m in mine)
        return ServerState(tuple(models))

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps() + 1, use=1)

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return self._best(down, local)[1]

    def max_numbers(self, task: Task) -> int:
        return (self.clusters + 1) * task.layout.size + 4096

    def _best(self, down: Message, local: Local) -> tuple[int, Vector]:
        """Return the cluster with the lowest training loss, the first of equals."""
        models = [down.vector(f"model{j}", local.layout.size) for j in range(self.clusters)]
        best = int(np.argmin(local.mean_losses(models)))
        return best, models[best]
