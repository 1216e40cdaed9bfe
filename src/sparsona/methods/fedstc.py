"""FedSTC: Sattler, Wiedemann, Mueller, Samek, "Robust and Communication-Efficient Federated Learning from Non-IID
Data", IEEE TNNLS 2019. Updates become signs of their largest entries; both sides keep the rest for later."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Message, Sparse, Ternary, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import ClientState, trained_with
from sparsona.ops.mean import elementwise_mean
from sparsona.ops.moments import EMPTY, Moments
from sparsona.ops.server import PLAIN_STEP, ServerStep
from sparsona.ops.sparse import top_supports
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """W, the residual A_s, the last broadcasts and their number, the number that each client has applied, and the
    step's state."""

    weights: Vector
    residual: Vector
    broadcasts: tuple[Ternary, ...]
    count: int
    applied: dict[ClientId, int]
    moments: Moments = EMPTY


def held_by(state: ClientState, down: Message, layout: Layout) -> Vector:
    """Return the client's model with the received broadcasts."""
    if "weights" in down:
        return down.vector("weights", layout.size)
    return sum((as_sparse(down.ternary(f"t{i}"), layout).dense() for i in range(len(down) - 1)), state.weights)


@METHODS.add
@dataclass(frozen=True)
class FedSTC(Method[ServerState, ClientState]):
    """Sparse ternary compression both ways, with error feedback on both sides; one global model."""

    feedback: ClassVar[str] = "residual"

    sparsity: float = option(0.9, "share of each tensor that is left out", ge=0, lt=1)
    history: int = option(
        32,
        "broadcasts that the server keeps for clients that missed them; it sends the model if that is smaller",
        ge=1,
        le=60,
    )
    mean: Literal["examples", "clients"] = option("examples", "weigh replies by their examples, or all alike")
    server: ServerStep = PLAIN_STEP

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, np.zeros(task.layout.size, np.float32), (), 0, {})

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial, np.zeros(task.layout.size, np.float32))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        left_out = server.applied.get(to, 0) - server.count + len(server.broadcasts)
        if left_out < 0 or ternary_bits(server.broadcasts[left_out:]) > 32 * len(server.weights):
            return Message(weights=server.weights, count=server.count)
        return Message(**{f"t{i}": t for i, t in enumerate(server.broadcasts[left_out:])}, count=server.count)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        held = held_by(state, down, local.layout)
        learnt = trained_with(state.residual, held, local)
        if learnt is None:
            return Fit(state, Message(), held)
        trained, wanted = learnt
        sent = ternarise(wanted, local.layout, self.sparsity)
        kept, lost = ClientState(held, wanted - sent.dense()), ClientState(state.weights, wanted)
        return Fit(kept, Message(update=sent, examples=local.examples), trained.weights, if_lost=lost)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout, equal = context.task.layout, self.mean == "clients"
        messages = (a.message for a in arrivals)
        replies = ((1 if equal else m.examples(), as_sparse(m.ternary("update"), layout)) for m in messages)
        way, moments = self.server.direction(elementwise_mean(layout.size, replies, absent=True), server.moments)
        wanted = server.residual + way
        sent = ternarise(wanted, layout, self.sparsity)
        terms = (*server.broadcasts, sent)[-self.history :]
        applied = {**server.applied, **{a.client: a.sent.integer("count") for a in arrivals}}
        weights, residual = server.weights + sent.dense(), wanted - sent.dense()
        return ServerState(weights, residual, terms, server.count + 1, applied, moments)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return held_by(state, down, local.layout)

    def max_numbers(self, task: Task) -> int:
        return (self.history + 2) * task.layout.size + 4096


def ternarise(vector: Vector, layout: Layout, sparsity: float) -> Ternary:
    """Keep each parameter tensor's largest entries as signs times their mean magnitude."""
    indices = top_supports(vector, (t.slice for t in layout.tensors), sparsity)
    tensor = np.searchsorted(np.cumsum(layout.lengths), indices, side="right")
    totals = np.bincount(tensor, np.abs(vector[indices]).astype(np.float64), len(layout.lengths))
    counts = np.bincount(tensor, minlength=len(layout.lengths))
    magnitudes = np.divide(totals, counts, out=np.zeros(len(totals)), where=counts > 0)
    return Ternary(layout.lengths, indices, vector[indices] < 0, magnitudes.astype(np.float32))


def as_sparse(part: Ternary, layout: Layout) -> Sparse:
    """Return a ternary vector of this layout as positions and values."""
    if part.sizes != layout.lengths:
        raise WireError(f"a ternary vector is cut into tensors of {part.sizes}, expected {layout.lengths}")
    tensor = np.searchsorted(np.cumsum(part.sizes), part.indices, side="right")
    signs = np.where(part.negative, np.float32(-1), np.float32(1))
    return Sparse(layout.size, part.indices, signs * part.magnitudes[tensor])


def ternary_bits(parts: Iterable[Ternary]) -> float:
    """Estimate the bits on the wire: the entropy of the positions and one bit per sign.

    >>> round(ternary_bits([Ternary((100,), np.arange(0, 100, 10), np.zeros(10, bool), [1])]))
    89
    """
    bits = 0.0
    for part in parts:
        size, count = sum(part.sizes), len(part.indices)
        for share in (count / size, 1 - count / size):
            bits -= size * share * np.log2(share) if share else 0.0
        bits += count + 32 * len(part.sizes)
    return float(bits)
