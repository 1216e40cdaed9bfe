"""SPFL-w: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the variant that mixes weights
instead of updates: w_i <- sum_j softmax(S_ij) w_j'. One matrix for the whole net, smoothed over the measuring passes,
as in the authors' code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Vector
from sparsona.method import ClientId
from sparsona.methods import METHODS
from sparsona.methods._similar import Measuring, Replies, ServerState
from sparsona.methods.spfl import weighed
from sparsona.ops.pairwise import Lazy, Matrix, Similarity, Vectors, add_mixtures, mixed_cosines, row_softmax
from sparsona.ops.stages import weight_tensors

WHOLE = "whole"
WEIGHTS = {4: (0.4, 0.2, 0.2, 0.2)}
"""How the code weighs the cosines of the tensors, by their number; other nets take the mean."""


@METHODS.add
@dataclass(frozen=True)
class SPFLw(Measuring):
    """A model a client: the mean of everyone's models, weighted by how alike their gradients are.

    `keep`: the share of the old similarity that a new measurement leaves.
    """

    keep: Annotated[float, Field(ge=0, lt=1)] = 0.6

    def similarities(self, updates: Vectors, layout: Layout) -> dict[str, Matrix]:
        return mixed_cosines(updates, {WHOLE: weighed(weight_tensors(layout), WEIGHTS)})

    def smoothed(self, old: Similarity, names: Sequence[ClientId], stages: dict[str, Matrix]) -> Similarity:
        return old.updated(names, stages, self.keep)

    def mixed(self, server: ServerState, replies: Replies, layout: Layout) -> dict[ClientId, Vector]:
        clients, updates = replies.clients, replies.updates
        trained = Lazy(len(clients), lambda i: server.model(clients[i]) + updates[i])
        models = [np.zeros(layout.size, np.float32) for _ in clients]
        shares = row_softmax(server.similarity.of(WHOLE, clients))
        add_mixtures(models, [(shares, [slice(0, layout.size)])], trained)
        return dict(zip(clients, models, strict=True))
