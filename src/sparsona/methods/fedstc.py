"""FedSTC: Sattler, Wiedemann, Mueller, Samek, "Robust and Communication-Efficient Federated Learning from Non-IID
Data", IEEE TNNLS 2019. Updates are compressed to signs of their largest entries, in both directions, and both sides
keep what was left out for later. One global model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sparsona.layout import Layout
from sparsona.message import Message, Ternary, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import trained_with
from sparsona.ops.buffers import buffers_of, with_buffers, with_mean_buffers
from sparsona.ops.elementwise import elementwise_mean
from sparsona.ops.ternary import as_sparse, no_ternary, ternarise, ternary_bits
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The model W, the residual A_s, the last broadcasts by round, the round of the last that was forgotten, and for
    each client the round it last answered: it has the broadcasts of all rounds before."""

    weights: Vector
    residual: Vector
    broadcasts: dict[int, Ternary]
    forgotten: int
    answered: dict[ClientId, int]


@dataclass(frozen=True)
class ClientState:
    """W as of `round`, the client's last; its residual A_i, and what it sent then, which returns if it was lost."""

    weights: Vector
    residual: Vector
    sent: Ternary
    round: int = -1


@METHODS.add
@dataclass(frozen=True)
class FedSTC(Method[ServerState, ClientState]):
    """Sparse ternary compression both ways with error feedback on both sides; one global model.

    `sparsity` p is the share of each tensor that is left out. The server remembers its last `history` broadcasts: a
    client that missed some gets their partial sum, as its terms (they take less than their sum, and the client has the
    server's model to the last bit), or the whole model where that is smaller. `mean`: by examples, or of the clients.
    """

    sparsity: Annotated[float, Field(ge=0, lt=1)] = 0.9
    history: Annotated[int, Field(ge=1, le=60)] = 32
    mean: Literal["examples", "clients"] = "examples"

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, np.zeros(task.layout.size, np.float32), {}, -1, {})

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial, np.zeros(task.layout.size, np.float32), no_ternary(task.layout))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        since = server.answered.get(to, 0)
        missed = {_name(r): sent for r, sent in server.broadcasts.items() if r >= since}
        if since <= server.forgotten or ternary_bits(missed.values()) > 32 * len(server.weights):
            return Message(weights=server.weights)
        return Message(**missed, **(buffers_of(server.weights, context.task.layout) if missed else {}))

    def fit(self, client: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        layout, start = local.layout, _received(client, down, local.layout)
        lost = as_sparse(client.sent, layout).dense() if client.round > down.acked else np.float32(0)
        learnt = trained_with(client.residual + lost, start, local)
        if learnt is None:
            return Fit(client, Message(), start)
        trained, wanted = learnt
        sent = ternarise(wanted, layout, self.sparsity)
        reply = Message(update=sent, examples=local.examples, **buffers_of(trained.weights, layout))
        return Fit(ClientState(start, wanted - sent.dense(), sent, local.round), reply, trained.weights)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout, by_examples = context.task.layout, self.mean == "examples"
        replies = (
            (a.message.examples() if by_examples else 1, as_sparse(a.message.ternary("update"), layout))
            for a in arrivals
        )
        wanted = server.residual + elementwise_mean(layout.size, replies, absent=True)
        sent = ternarise(wanted, layout, self.sparsity)
        broadcasts = {**server.broadcasts, context.round: sent}
        old = sorted(broadcasts)[: -self.history]
        return ServerState(
            weights=with_mean_buffers(server.weights + sent.dense(), arrivals, layout),
            residual=wanted - sent.dense(),
            broadcasts={r: t for r, t in broadcasts.items() if r not in old},
            forgotten=max(old, default=server.forgotten),
            answered={**server.answered, **{a.client: a.round for a in arrivals}},
        )

    def personal_model(self, client: ClientState, down: Message, local: Local) -> Vector:
        return _received(client, down, local.layout)

    def max_numbers(self, task: Task) -> int:
        return (self.history + 2) * task.layout.size + 4096


def _name(round: int) -> str:
    return f"t{round}"


def _received(client: ClientState, down: Message, layout: Layout) -> Vector:
    """W after the broadcasts that this client has not applied yet, in their order."""
    if "weights" in down:
        return down.vector("weights", layout.size)
    weights = client.weights
    for number in sorted(int(name[1:]) for name in down if name.startswith("t")):
        if number >= client.round:
            weights = weights + as_sparse(down.ternary(_name(number)), layout).dense()
    return with_buffers(weights, down, layout)
