"""SPFL-w: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the variant that mixes weights
instead of updates: w_i <- sum_j softmax(S_ij) w_j'. One matrix for the whole net, smoothed over the measuring passes,
as in the authors' code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from sparsona.message import Vector
from sparsona.method import Arrival, ClientId
from sparsona.methods import METHODS
from sparsona.methods._similar import Measuring, Server
from sparsona.methods.spfl import mixed_cosines
from sparsona.ops.pairwise import Matrix, Similarity, add_mixtures, row_softmax
from sparsona.vector import Layout

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

    def similarities(self, updates: Sequence[Vector], layout: Layout) -> dict[str, Matrix]:
        return {WHOLE: mixed_cosines(updates, layout, None, WEIGHTS)}

    def smoothed(self, old: Similarity, names: Sequence[ClientId], stages: dict[str, Matrix]) -> Similarity:
        return old.updated(names, stages, self.keep)

    def mixed(self, server: Server, replies: Sequence[Arrival], layout: Layout) -> dict[ClientId, Vector]:
        names = [a.client for a in replies]
        trained = [
            server.models.get(a.client, server.common) + a.message.vector("update", layout.size) for a in replies
        ]
        models = [np.zeros(layout.size, np.float32) for _ in replies]
        add_mixtures(models, row_softmax(server.similarity.of(WHOLE, names)), trained, [slice(0, layout.size)])
        return dict(zip(names, models, strict=True))
