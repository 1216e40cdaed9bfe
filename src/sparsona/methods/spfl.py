"""SPFL and SPFL-w: "Personalized Heterogeneous Federated Learning with Gradient Similarity".

Every `gamma` rounds a pass measures how alike the clients' gradients are. Clients that take part start this pass from
the mean of all models and continue from that mean; the training of the pass is discarded. In SPFL each client's model
moves by all clients' updates, weighted by their similarity, stage by stage; SPFL-w mixes weights instead of updates:
w_i <- sum_j softmax(S_ij) w_j', in all layers, as the paper has it.

Equation (7) weighs by |D_j|/|D| and alpha on top, a step about a thousandth of FedAvg's; the authors' code does not,
and neither does this, unless `paper_eq7` asks for it. Their code keeps each client's own head, the text mixes it. One
matrix for the whole net of SPFL-w, smoothed over the measuring passes, is from the authors' code. Two details of it are
not in the paper and not here: it takes the plain mean of the heads, and it smooths from zero, so that the first mixture
is softmax(0.4 S). Here the first measurement counts in full.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from sparsona.by_client import ByClient
from sparsona.layout import Layout, Tensor
from sparsona.message import Message, Vector
from sparsona.method import (
    TRAIN,
    Arrival,
    Artefact,
    ClientId,
    ClientMatrices,
    Fit,
    Method,
    Phase,
    Queries,
    ServerContext,
    Steps,
    Task,
)
from sparsona.methods import METHODS
from sparsona.ops.mean import weighted_mean
from sparsona.ops.pairwise import (
    LazyVectors,
    Matrix,
    Similarity,
    Vectors,
    add_mixtures,
    cosines,
    fits,
    mixed_cosines,
    row_softmax,
)
from sparsona.ops.parts import BASE, HEAD, stage_spans, weight_tensors, whole_net
from sparsona.options import option
from sparsona.training.local import Local

ALPHA = 0.01
BASE_WEIGHTS, NET_WEIGHTS = {3: (0.5, 0.3, 0.2)}, {4: (0.4, 0.2, 0.2, 0.2)}
"""How the code weighs the cosines of the base's and the whole net's tensors, by their number; other nets take the
mean."""
MEASURE = Phase("measure")
WHOLE = "whole"


@dataclass(frozen=True)
class ServerState:
    """`common`, the start of the last measuring pass; the models w_i of clients that differ from it; and the mean of
    all known clients, the start of the next pass. A new client has the model `common`.
    """

    common: Vector
    mean: Vector
    models: ByClient[Vector]
    similarity: Similarity

    def model(self, client: ClientId) -> Vector:
        """Return a client's model."""
        return self.models.get(client, self.common)

    def measured(self, clients: Sequence[ClientId], similarity: Similarity) -> ServerState:
        """Return the state after a measuring pass: participants have the mean, absent clients keep their models."""
        elsewhere = {k: self.common for k in self.similarity.clients if k not in self.models}
        return ServerState(self.mean, self.mean, (self.models | elsewhere).without(clients), similarity)

    def averaged(self) -> ServerState:
        """Return the state with the present mean of the models of all clients that ever replied."""
        known = sorted({*self.similarity.clients, *self.models})
        return replace(self, mean=weighted_mean((1.0, self.model(k)) for k in known))


@dataclass(frozen=True)
class Replies:
    """The trained models of some clients, and their numbers of examples."""

    clients: tuple[ClientId, ...]
    examples: tuple[int, ...]
    updates: Vectors


def sorted_out(arrivals: Sequence[Arrival], size: int) -> tuple[Replies, Replies]:
    """Return the replies of measuring and of training, decoded once if they fit into memory, else on access."""
    replies = list(arrivals) if fits(len(arrivals), size) else arrivals
    seen = [(a.client, 0 if "measured" in a.message else a.message.examples()) for a in replies]

    def update(reply: Arrival) -> Vector:
        return reply.message.vector("weights", size) - reply.sent.vector("weights", size)

    def those(places: list[int]) -> Replies:
        updates = LazyVectors(len(places), lambda i: update(replies[places[i]]))
        return Replies(tuple(seen[i][0] for i in places), tuple(seen[i][1] for i in places), updates)

    measuring = [i for i, (_, examples) in enumerate(seen) if not examples]
    return those(measuring), those([i for i, (_, examples) in enumerate(seen) if examples])


@dataclass(frozen=True)
class BySimilarity(Method[ServerState, None], ABC):
    """A method that mixes the clients' models by how alike their gradients are."""

    buffers: ClassVar[Literal["averaged", "own"]] = "own"
    unused: ClassVar[tuple[str, ...]] = ("repeats",)

    gamma: int = option(10, "rounds between two measurements of similarity", ge=1)
    steps: Literal["two", "one"] = option("two", "gradient steps per batch")

    @abstractmethod
    def measured(self, old: Similarity, replies: Replies, layout: Layout) -> Similarity:
        """Return the similarity after the replies of a measuring pass."""

    @abstractmethod
    def mixed(self, server: ServerState, replies: Replies, layout: Layout) -> dict[ClientId, Vector]:
        """Return the clients' new models after the replies of training."""

    def phases(self, round: int) -> tuple[Phase, ...]:
        return (MEASURE, TRAIN) if round % self.gamma == 0 else (TRAIN,)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, task.initial, ByClient(), Similarity((), {}))

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.mean if context.phase == MEASURE else server.model(to))

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        config = replace(local.config, repeats=2 if self.steps == "two" else 1)
        stream = "measure" if local.phase == MEASURE else "train"
        trained = local.train(self.personal_model(state, down, local), config, stream=stream).weights
        if local.phase == MEASURE:
            return Fit(None, Message(weights=trained, measured=1), None)
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout = context.task.layout
        measuring, training = sorted_out(arrivals, layout.size)
        if measuring.clients:
            server = server.measured(measuring.clients, self.measured(server.similarity, measuring, layout))
        if training.clients:
            server = replace(server, models=server.models | self.mixed(server, training, layout))
        return server.averaged()

    def queries(self, steps: Steps) -> Queries:
        one = steps(repeats=2 if self.steps == "two" else 1)
        return Queries(one * (1 + 1 / self.gamma), once=one)

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return down.vector("weights", local.layout.size)

    def artefacts(self, server: ServerState) -> dict[str, Artefact]:
        found = server.similarity
        return {"similarity": ClientMatrices(found.clients, found.stages)} if found.clients else {}


@METHODS.named("spfl")
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
        """Return the cosines between all updates, stage by stage."""
        stages = stage_spans(layout)
        if self.cosine == "net":
            return dict.fromkeys(stages, cosines(updates, [whole_net(layout)])[0])
        if self.cosine == "concat":
            return dict(zip(stages, cosines(updates, list(stages.values())), strict=True))
        known = {BASE: BASE_WEIGHTS}
        return mixed_cosines(updates, {s: weighted(weight_tensors(layout, s), known.get(s, {})) for s in stages})

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


@METHODS.named("spfl-w")
@dataclass(frozen=True)
class SPFLw(BySimilarity):
    """One model per client: the mean of all clients' models, weighted by the similarity of their gradients."""

    merge: Literal["mean", "agree"] = option("mean", "agree: mix only with clients of a similarity above 0")
    keep: float = option(0.6, "share of the old similarity that a new measurement keeps", ge=0, lt=1)

    def measured(self, old: Similarity, replies: Replies, layout: Layout) -> Similarity:
        found = mixed_cosines(replies.updates, {WHOLE: weighted(weight_tensors(layout), NET_WEIGHTS)})
        return old.updated(replies.clients, found, self.keep)

    def mixed(self, server: ServerState, replies: Replies, layout: Layout) -> dict[ClientId, Vector]:
        clients, updates = replies.clients, replies.updates
        trained = LazyVectors(len(clients), lambda i: server.model(clients[i]) + updates[i])
        models = [np.zeros(layout.size, np.float32) for _ in clients]
        shares = row_softmax(server.similarity.of(WHOLE, clients), positive=self.merge == "agree")
        add_mixtures(models, [(shares, [slice(0, layout.size)])], trained)
        return dict(zip(clients, models, strict=True))


def weighted(tensors: Sequence[Tensor], weights: Mapping[int, tuple[float, ...]]) -> list[tuple[float, slice]]:
    """Pair each tensor's slice with its weight: `weights` by the number of tensors, equal ones for other numbers."""
    shares = weights.get(len(tensors), (1 / len(tensors),) * len(tensors))
    return [(share, tensor.slice) for share, tensor in zip(shares, tensors, strict=True)]
