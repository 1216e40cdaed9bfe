"""SPFL-w: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the variant that mixes weights
instead of updates: w_i <- sum_j softmax(S_ij) w_j', in all layers, as the paper has it.

One matrix for the whole net, smoothed over the measuring passes, is from the authors' code. Two details of it are
not in the paper and not here: it takes the plain mean of the heads, and it smooths from zero, so that the first mixture
is softmax(0.4 S). Here the first measurement counts in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import Arrival, Artefact, ClientId, Fit, Method, Phase, ServerContext, Task
from sparsona.methods import METHODS, _similar
from sparsona.methods._similar import Replies, ServerState
from sparsona.ops.pairwise import LazyVectors, Matrix, Similarity, Vectors, add_mixtures, mixed_cosines, row_softmax
from sparsona.ops.stages import weight_tensors, weighted_slices
from sparsona.options import option
from sparsona.training.local import Local

WHOLE = "whole"
WEIGHTS = {4: (0.4, 0.2, 0.2, 0.2)}
"""How the code weighs the cosines of the tensors, by their number; other nets take the mean."""


@METHODS.add
@dataclass(frozen=True)
class SPFLw(Method[ServerState, None]):
    """One model per client: the mean of all clients' models, weighted by the similarity of their gradients."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"
    unused: ClassVar[tuple[str, ...]] = ("repeats",)

    gamma: int = option(10, "rounds between two measurements of similarity", ge=1)
    steps: Literal["two", "one"] = option("two", "gradient steps per batch")
    keep: float = option(0.6, "share of the old similarity that a new measurement keeps", ge=0, lt=1)

    def phases(self, round: int) -> tuple[Phase, ...]:
        return _similar.phases(round, self.gamma)

    def start_server(self, task: Task) -> ServerState:
        return _similar.start_server(task)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return _similar.send(server, to, context)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        return _similar.fit(down, local, 2 if self.steps == "two" else 1)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout = context.task.layout

        def measured(old: Similarity, replies: Replies) -> Similarity:
            return old.updated(replies.clients, self.similarities(replies.updates, layout), self.keep)

        return _similar.aggregate(server, arrivals, layout, measured, lambda s, replies: self.mixed(s, replies, layout))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return down.vector("weights", local.layout.size)

    def artefacts(self, server: ServerState) -> dict[str, Artefact]:
        return _similar.artefacts(server)

    def similarities(self, updates: Vectors, layout: Layout) -> dict[str, Matrix]:
        """The cosines between all updates."""
        return mixed_cosines(updates, {WHOLE: weighted_slices(weight_tensors(layout), WEIGHTS)})

    def mixed(self, server: ServerState, replies: Replies, layout: Layout) -> dict[ClientId, Vector]:
        """The clients' new models: means of everyone's, by similarity."""
        clients, updates = replies.clients, replies.updates
        trained = LazyVectors(len(clients), lambda i: server.model(clients[i]) + updates[i])
        models = [np.zeros(layout.size, np.float32) for _ in clients]
        shares = row_softmax(server.similarity.of(WHOLE, clients))
        add_mixtures(models, [(shares, [slice(0, layout.size)])], trained)
        return dict(zip(clients, models, strict=True))
