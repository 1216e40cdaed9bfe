"""FedPSE: "Personalized Sparsification with Element-wise Aggregation for Federated Learning". Clients send the largest
entries of their updates and keep the rest for later (UPS); the server averages each entry over those who sent it (EWA)
and gives each client the entries that suit it (DPS). There is no global model: a client's model is its start plus all
that the server has sent to it. Where the paper's listings contradict its algorithms, the algorithms are followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Message, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import trained_with
from sparsona.methods.fedpse.personal import Common, personal_supports
from sparsona.ops.buffers import buffers_of, with_buffers, with_mean_buffers
from sparsona.ops.elementwise import elementwise_mean
from sparsona.ops.packed import Packed
from sparsona.ops.topk import top_supports
from sparsona.training.local import Local
from sparsona.training.optimizer import Moments


@dataclass(frozen=True)
class ServerState:
    """What each client is owed on top of the model it last answered from, a model W_s for newcomers, each client's last
    correlation distance d (its mean over the tensors, by the entries sent of each), and what was common to the rounds
    that a client misses while its reply is under way."""

    weights: Vector
    owed: dict[ClientId, Packed]
    distance: dict[ClientId, float]
    missed: dict[ClientId, Packed] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientState:
    """W_i is `base + came`: the model of the last reply that the server has, and the downlink that came on top of it.
    `residual` is e_i; `sent` is the reply of round `round`, which goes back into the residual if it was lost."""

    base: Vector
    came: Packed
    residual: Vector
    sent: Packed
    round: int = -1
    moments: Moments | None = None

    @property
    def weights(self) -> Vector:
        return self.came.added_to(self.base)


@METHODS.add
@dataclass(frozen=True)
class FedPSE(Method[ServerState, ClientState]):
    """Sparse and personal both ways: top-k updates up, averaged by element, each client's choice of them down.

    `sparsity` p is the share left out each way, of each tensor or of the whole model (`scope`). Without `ewa` zeros
    count in the mean; without `dps` all get the same. Who is absent keeps its model as it was; with `broadcast_absent`
    it gets the common choice of the rounds that it missed when it comes back. `opt_state`: whether the optimiser's
    memory survives the round.
    """

    sparsity: Annotated[float, Field(ge=0, lt=1)] = 0.9
    ewa: bool = True
    dps: bool = True
    scope: Literal["tensor", "model"] = "tensor"
    broadcast_absent: bool = False
    opt_state: Literal["fresh", "persist"] = "fresh"

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, {}, {})

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        nothing = Packed.nothing(task.layout.size)
        return ClientState(task.initial, nothing, np.zeros(task.layout.size, np.float32), nothing)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        if to in server.owed:
            return Message(update=server.owed[to].sparse(), **buffers_of(server.weights, context.task.layout))
        if not server.owed or (to in context.task.clients and not self.broadcast_absent):
            return Message()  # it has the initial model, and nothing has come for it since
        return Message(weights=server.weights)

    def fit(self, client: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        own, layout = _received(client, down, local.layout), local.layout
        start = own.weights
        if not local.examples:
            return Fit(client, Message(), start)  # nothing to learn from
        learnt = trained_with(own.residual, start, local, own.moments)
        if learnt is None:
            return Fit(client, Message(), start)  # the residual is kept, and what was owed is still owed
        trained, wanted = learnt
        sent = Sparse.take(wanted, top_supports(wanted, self._spans(layout), self.sparsity))
        wanted[sent.indices] = 0
        moments = trained.moments if self.opt_state == "persist" else None
        own = replace(own, residual=wanted, sent=Packed.of(sent), round=local.round, moments=moments)
        reply = Message(update=sent, examples=trained.examples, **buffers_of(trained.weights, layout))
        return Fit(own, reply, trained.weights)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout, spans = context.task.layout, self._spans(context.task.layout)
        replies = ((a.message.examples(), a.message.sparse("update", layout.size)) for a in arrivals)
        mean = elementwise_mean(layout.size, replies, absent=not self.ewa)
        common = Common.of(Sparse.take(mean, top_supports(mean, spans, self.sparsity)))
        same = Packed.of(common.support)
        owed, missed, distance = dict(server.owed), dict(server.missed), dict(server.distance)
        if self.broadcast_absent:
            owed = {client: last.plus(common.support) for client, last in owed.items()}
            late = {client: missed.get(client, Packed.nothing(layout.size)) for client in context.waiting}
            missed |= {client: last.plus(common.support) for client, last in late.items()}
        for client, update in ((a.client, a.message.sparse("update", layout.size)) for a in arrivals):
            chosen, distance[client] = personal_supports(common, update, spans, partial(context.rng, "dps", client))
            owed[client] = Packed.take(mean, chosen) if self.dps else same
            if client in missed:
                owed[client] = owed[client].plus(missed.pop(client).sparse())
        weights = same.added_to(server.weights)
        return ServerState(with_mean_buffers(weights, arrivals, layout), owed, distance, missed)

    def personal_model(self, client: ClientState, down: Message, local: Local) -> Vector:
        return _received(client, down, local.layout).weights

    def _spans(self, layout: Layout) -> list[slice]:
        return [t.slice for t in layout.parameters] if self.scope == "tensor" else [slice(0, layout.trainable)]


def _received(client: ClientState, down: Message, layout: Layout) -> ClientState:
    """The client once it has read its downlink, with the residual as if a lost reply had never left."""
    if client.round > down.acked:
        own = replace(client, residual=client.sent.added_to(client.residual))
    else:
        own = replace(client, base=client.weights)
    base = down.vector("weights", layout.size) if "weights" in down else with_buffers(own.base, down, layout)
    came = Packed.of(down.sparse("update", layout.size)) if "update" in down else Packed.nothing(layout.size)
    return replace(own, base=base, came=came)
