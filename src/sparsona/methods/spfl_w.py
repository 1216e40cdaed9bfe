"""SPFL-w: "Personalized Heterogeneous Federated Learning with Gradient Similarity", the variant that mixes weights
instead of updates: w_i <- sum_j softmax(S_ij) w_j', in all layers, as the paper has it.

One matrix for the whole net, smoothed over the measuring passes, is from the authors' code. Two details of it are
not in the paper and not here: it takes the plain mean of the heads, and it smooths from zero, so that the first mixture
is softmax(0.4 S). Here the first measurement counts in full.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsona.layout import Layout
from sparsona.message import Vector
from sparsona.method import ClientId
from sparsona.methods import METHODS
from sparsona.methods._similar import BySimilarity, Replies, ServerState
from sparsona.ops.pairwise import LazyVectors, Matrix, Similarity, Vectors, add_mixtures, mixed_cosines, row_softmax
from sparsona.ops.parts import weight_tensors, weighted_slices
from sparsona.options import option

WHOLE = "whole"
WEIGHTS = {4: (0.4, 0.2, 0.2, 0.2)}
"""How the code weighs the cosines of the tensors, by their number; other nets take the mean."""


@METHODS.add
@dataclass(frozen=True)
class SPFLw(BySimilarity):
    """One model per client: the mean of all clients' models, weighted by the similarity of their gradients."""

    merge: Literal["mean", "agree"] = option("mean", "agree: mix only with clients of a similarity above 0")
    keep: float = option(0.6, "share of the old similarity that a new measurement keeps", ge=0, lt=1)

    def measured(self, old: Similarity, replies: Replies, layout: Layout) -> Similarity:
        return old.updated(replies.clients, self.similarities(replies.updates, layout), self.keep)

    def similarities(self, updates: Vectors, layout: Layout) -> dict[str, Matrix]:
        """The cosines between all updates."""
        return mixed_cosines(updates, {WHOLE: weighted_slices(weight_tensors(layout), WEIGHTS)})

    def mixed(self, server: ServerState, replies: Replies, layout: Layout) -> dict[ClientId, Vector]:
        clients, updates = replies.clients, replies.updates
        trained = LazyVectors(len(clients), lambda i: server.model(clients[i]) + updates[i])
        models = [np.zeros(layout.size, np.float32) for _ in clients]
        shares = row_softmax(server.similarity.of(WHOLE, clients), positive=self.merge == "agree")
        add_mixtures(models, [(shares, [slice(0, layout.size)])], trained)
        return dict(zip(clients, models, strict=True))
