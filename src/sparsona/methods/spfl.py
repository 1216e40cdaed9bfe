"""SPFL: "Personalized Heterogeneous Federated Learning with Gradient Similarity". Each client's model moves by all
clients' updates, weighted by how alike their gradients were when all started from the same point, stage by stage.

Equation (7) weighs by |D_j|/|D| and alpha on top, a step about a thousandth of FedAvg's; the authors' code does not,
and neither does this, unless `paper_eq7` asks for it. Their code keeps each client's own head, the text mixes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsona.message import Vector
from sparsona.method import Arrival, ClientId
from sparsona.methods import METHODS
from sparsona.methods._similar import Measuring, Server
from sparsona.ops.pairwise import Matrix, add_mixtures, cosines, row_softmax
from sparsona.ops.stages import BASE, HEAD, stage_spans, weight_tensors
from sparsona.vector import Layout

ALPHA = 0.01
BASE_WEIGHTS = {3: (0.5, 0.3, 0.2)}
"""How the code weighs the cosines of the base's tensors, by their number; other nets take the mean."""


@METHODS.add
@dataclass(frozen=True)
class SPFL(Measuring):
    """A model a client, moved by everyone's updates as far as their gradients are alike.

    `head` own: the last layer moves by the client's own update only. `cosine`: of a stage as one vector (concat), or
    the tensors' cosines mixed. `paper_eq7`: the printed step size.
    """

    head: Literal["own", "mixed"] = "own"
    cosine: Literal["mixed", "concat"] = "mixed"
    paper_eq7: bool = False

    def similarities(self, updates: Sequence[Vector], layout: Layout) -> dict[str, Matrix]:
        spans = stage_spans(layout)
        if self.cosine == "concat":
            return {stage: cosines(updates, found) for stage, found in spans.items()}
        return {stage: mixed_cosines(updates, layout, stage, BASE_WEIGHTS) for stage in spans}

    def mixed(self, server: Server, replies: Sequence[Arrival], layout: Layout) -> dict[ClientId, Vector]:
        names = [a.client for a in replies]
        updates = [a.message.vector("update", layout.size) for a in replies]
        models = [server.models.get(k, server.common).copy() for k in names]
        own = np.eye(len(names))
        sizes = np.array([a.message.examples() for a in replies], np.float64)
        for stage, spans in stage_spans(layout).items():
            shares = own if stage == HEAD and self.head == "own" else row_softmax(server.similarity.of(stage, names))
            add_mixtures(models, ALPHA * shares * (sizes / sizes.sum()) if self.paper_eq7 else shares, updates, spans)
        add_mixtures(models, own, updates, [slice(layout.trainable, layout.size)])
        return dict(zip(names, models, strict=True))


def mixed_cosines(
    updates: Sequence[Vector], layout: Layout, stage: str | None, weights: Mapping[int, tuple[float, ...]]
) -> Matrix:
    """The cosines of a stage's weight tensors, mixed."""
    tensors = weight_tensors(layout, stage)
    equal = (1 / len(tensors),) * len(tensors)
    shares = equal if stage not in (BASE, None) else weights.get(len(tensors), equal)
    parts = (share * cosines(updates, [t.slice]) for share, t in zip(shares, tensors, strict=True))
    return sum(parts, np.zeros((len(updates), len(updates))))
