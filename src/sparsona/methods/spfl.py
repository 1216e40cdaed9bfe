"""SPFL: "Personalized Heterogeneous Federated Learning with Gradient Similarity". Each client's model moves by all
clients' updates, weighted by how alike their gradients were when all started from the same point, stage by stage.

Equation (7) weighs by |D_j|/|D| and alpha on top, a step about a thousandth of FedAvg's; the authors' code does not,
and neither does this, unless `paper_eq7` asks for it. Their code keeps each client's own head, the text mixes it."""

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
from sparsona.ops.pairwise import Matrix, Similarity, Vectors, add_mixtures, cosines, mixed_cosines, row_softmax
from sparsona.ops.stages import BASE, HEAD, stage_spans, weight_tensors, weighted_slices, whole_net
from sparsona.options import option
from sparsona.training.local import Local

ALPHA = 0.01
BASE_WEIGHTS = {3: (0.5, 0.3, 0.2)}
"""How the code weighs the cosines of the base's tensors, by their number; other nets take the mean."""


@METHODS.add
@dataclass(frozen=True)
class SPFL(Method[ServerState, None]):
    """One model per client, moved by the updates of all clients as far as their gradients are similar."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"
    unused: ClassVar[tuple[str, ...]] = ("repeats",)

    gamma: int = option(10, "rounds between two measurements of similarity", ge=1)
    steps: Literal["two", "one"] = option("two", "gradient steps per batch")
    head: Literal["own", "mixed"] = option("own", "own: only the client's own update moves its last layer")
    cosine: Literal["mixed", "concat", "net"] = option(
        "mixed", "similarity of a stage: mixture of its tensors' cosines, one cosine (concat), or one for the net"
    )
    paper_eq7: bool = option(False, "use the printed step size, about a thousandth of this one")

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
            return old.updated(replies.clients, self.similarities(replies.updates, layout))

        return _similar.aggregate(server, arrivals, layout, measured, lambda s, replies: self.mixed(s, replies, layout))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return down.vector("weights", local.layout.size)

    def artefacts(self, server: ServerState) -> dict[str, Artefact]:
        return _similar.artefacts(server)

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
        """The clients' models, moved by everyone's updates."""
        models = [server.model(k).copy() for k in replies.clients]
        own, sizes = np.eye(len(models)), np.array(replies.examples, np.float64)
        mixtures = []
        for stage, spans in stage_spans(layout).items():
            alike = server.similarity.of(stage, replies.clients)
            shares = own if stage == HEAD and self.head == "own" else row_softmax(alike)
            mixtures.append((ALPHA * shares * (sizes / sizes.sum()) if self.paper_eq7 else shares, spans))
        add_mixtures(models, mixtures, replies.updates)
        return dict(zip(replies.clients, models, strict=True))
