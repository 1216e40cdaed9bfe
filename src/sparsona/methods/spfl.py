"""SPFL: "Personalized Heterogeneous Federated Learning with Gradient Similarity". Each client's model moves by all
clients' updates, weighted by how alike their gradients were when all started from the same point, stage by stage.

Equation (7) weighs by |D_j|/|D| and alpha on top, a step about a thousandth of FedAvg's; the authors' code does not,
and neither does this, unless `paper_eq7` asks for it. Their code keeps each client's own head, the text mixes it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsona.layout import Layout
from sparsona.message import Vector
from sparsona.method import ClientId
from sparsona.methods import METHODS
from sparsona.methods._similar import BySimilarity, Replies, ServerState
from sparsona.ops.pairwise import Matrix, Similarity, Vectors, add_mixtures, cosines, mixed_cosines, row_softmax
from sparsona.ops.parts import BASE, HEAD, stage_spans, weight_tensors, weighted_slices, whole_net
from sparsona.options import option

ALPHA = 0.01
BASE_WEIGHTS = {3: (0.5, 0.3, 0.2)}
"""How the code weighs the cosines of the base's tensors, by their number; other nets take the mean."""


@METHODS.add
@dataclass(frozen=True)
class SPFL(BySimilarity):
    """One model per client, moved by the updates of all clients as far as their gradients are similar."""

    head: Literal["own", "mixed"] = option("own", "own: only the client's own update moves its last layer")
    cosine: Literal["mixed", "concat", "net"] = option(
        "mixed", "similarity of a stage: mixture of its tensors' cosines, one cosine (concat), or one for the net"
    )
    merge: Literal["mean", "agree"] = option("mean", "agree: mix only with clients of a similarity above 0")
    paper_eq7: bool = option(False, "use the printed step size, about a thousandth of this one")

    def measured(self, old: Similarity, replies: Replies, layout: Layout) -> Similarity:
        return old.updated(replies.clients, self.similarities(replies.updates, layout))

    def similarities(self, updates: Vectors, layout: Layout) -> dict[str, Matrix]:
        """The cosines between all updates, stage by stage."""
        stages = stage_spans(layout)
        if self.cosine == "net":
            return dict.fromkeys(stages, cosines(updates, [whole_net(layout)])[0])
        if self.cosine == "concat":
            return dict(zip(stages, cosines(updates, list(stages.values())), strict=True))
        weights = {s: BASE_WEIGHTS if s == BASE else {} for s in stages}
        return mixed_cosines(updates, {s: weighted_slices(weight_tensors(layout, s), weights[s]) for s in stages})

    def mixed(self, server: ServerState, replies: Replies, layout: Layout) -> dict[ClientId, Vector]:
        models = [server.model(k).copy() for k in replies.clients]
        own, sizes = np.eye(len(models)), np.array(replies.examples, np.float64)
        mixtures = []
        for stage, spans in stage_spans(layout).items():
            alike = server.similarity.of(stage, replies.clients)
            shares = own if stage == HEAD and self.head == "own" else row_softmax(alike, positive=self.merge == "agree")
            mixtures.append((ALPHA * shares * (sizes / sizes.sum()) if self.paper_eq7 else shares, spans))
        add_mixtures(models, mixtures, replies.updates)
        return dict(zip(replies.clients, models, strict=True))
