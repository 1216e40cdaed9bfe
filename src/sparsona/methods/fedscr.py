"""FedSCR: Wu, Yao, Wang, "FedSCR: Structure-Based Communication Reduction for Federated Learning", IEEE TPDS 2021.
A client sends those filters and channels of its update that moved enough and keeps the others for later; the server
averages and sends its whole model back. The adaptive threshold follows plato's `fedscr`.

A tensor of two or more dimensions is a table of rows (filters, outputs) and columns (channels, inputs), each cell
being a kernel. Rows and columns are structures; a cell is sent if both its row and its column are. Vectors (biases)
are always sent whole.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.errors import InputError, WireError
from sparsona.layout import Layout, Tensor
from sparsona.message import Mask, Message, Part, Positions, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import trained_with
from sparsona.ops.mean import elementwise_mean
from sparsona.ops.moments import EMPTY, Moments
from sparsona.ops.server import PLAIN_STEP, ServerStep
from sparsona.ops.sparse import Values, rounded, without
from sparsona.options import option
from sparsona.training.local import Local

Sums: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ServerState:
    """The model and what the server's step remembers; for the adaptive threshold also each client's last divergence
    plus significance, and the sum over the rounds of the variance of the clients' losses."""

    weights: Vector
    moved: dict[ClientId, float]
    variance: float
    rounds: int
    moments: Moments = EMPTY


@dataclass(frozen=True)
class ClientState:
    """The residual of error feedback."""

    residual: Vector


@METHODS.add
@dataclass(frozen=True)
class FedSCR(Method[ServerState, ClientState]):
    """Uploads the filters and channels that changed enough, with error feedback; downloads the whole model.

    Vectors (biases) are always sent.
    """

    feedback: ClassVar[str] = "residual"

    rule: Literal["share", "absolute", "adaptive"] = option(
        "share", "send the largest structures of each tensor, those with absolute sum >= tau, or one tau per client"
    )
    sparsity: float = option(0.9, "share of structures that is left out (rule share)", ge=0, lt=1)
    tau: float = option(0.3, "threshold of the absolute sum", ge=0)
    d1: float = option(1.0, "weight of the divergence in the adaptive threshold")
    d2: float = option(1.0, "weight of the significance in the adaptive threshold")
    d3: float = option(1.0, "weight of the mean variance of the losses in the adaptive threshold")
    values: Values = "float32"
    server: ServerStep = PLAIN_STEP

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, {}, 0.0, 0)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(np.zeros(task.layout.size, np.float32))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        if self.rule != "adaptive" or to not in server.moved:
            return Message(weights=server.weights)
        pull = server.moved[to] + self.d3 * server.variance / server.rounds
        return Message(weights=server.weights, tau=self.tau * 0.5 * (1 + math.tanh(0.5 * pull)))

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        layout, start = local.layout, self.personal_model(state, down, local)
        learnt = trained_with(state.residual, start, local)
        if learnt is None:
            return Fit(state, Message(), start)
        trained, update = learnt
        kept = self.kept(update, layout, down.real("tau") if "tau" in down else self.tau)
        taken = Sparse.take(update, np.flatnonzero(sent_entries(kept, layout)))
        sent = rounded(taken, layout.lengths, self.values)
        parts: dict[str, Part] = {"kept": Positions.of(kept), "values": sent.values}
        if self.rule == "adaptive":
            moved = self.d1 * _divergence(start, trained.weights, layout) + self.d2 * _significance(sent, start)
            parts |= {"loss": trained.loss, "moved": moved}
        new, reply = ClientState(without(update, sent)), Message(examples=local.examples, **parts)
        return Fit(new, reply, trained.weights, if_lost=ClientState(update))

    def kept(self, update: Vector, layout: Layout, tau: float) -> Mask:
        """Return the kept structures: for each table its rows, then its columns."""
        found: list[Mask] = []
        for tensor in tables(layout):
            cells = np.abs(update[tensor.slice].astype(np.float64)).reshape(*tensor.shape[:2], -1).sum(2)
            rows, columns = cells.sum(1), cells.sum(0)
            found += share(rows, columns, self.sparsity) if self.rule == "share" else (rows >= tau, columns >= tau)
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout = context.task.layout
        replies = ((a.message.examples(), _update(a.message, layout)) for a in arrivals)
        way, moments = self.server.direction(elementwise_mean(layout.size, replies, absent=True), server.moments)
        weights = server.weights + way
        if self.rule != "adaptive":
            return ServerState(weights, {}, 0.0, 0, moments)
        moved = {**server.moved, **{a.client: a.message.real("moved") for a in arrivals}}
        variance = server.variance + float(np.var([a.message.real("loss") for a in arrivals]))
        return ServerState(weights, moved, variance, server.rounds + 1, moments)

    def queries(self, steps: Steps) -> Queries:
        if self.rule == "adaptive":
            raise InputError("fedscr with rule=adaptive sends the training loss: set rule=share")
        return Queries(steps())

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return down.vector("weights", local.layout.size)


def tables(layout: Layout) -> list[Tensor]:
    """Return the tensors that have structures."""
    return [tensor for tensor in layout.tensors if len(tensor.shape) >= 2]


def share(rows: Sums, columns: Sums, sparsity: float) -> tuple[Mask, Mask]:
    """Keep at most 1 - `sparsity` of the cells, as many as one threshold on the sums relative to their largest allows.

    At least one cell is kept, unless all are zero.

    >>> share(np.array([8.0, 4.0, 2.0, 1.0]), np.array([6.0, 9.0]), 0.5)
    (array([ True,  True, False, False]), array([ True,  True]))
    >>> share(np.array([8.0, 4.0]), np.array([6.0, 6.1]), 0.9)
    (array([ True, False]), array([False,  True]))
    """
    if not rows.any():
        return rows > 0, columns > 0
    r, c = rows / rows.max(), columns / columns.max()
    cuts = np.unique(np.concatenate([[0.0], r, c]))[:-1]
    count = [len(part) - np.searchsorted(np.sort(part), cuts, side="right") for part in (r, c)]
    fits = count[0] * count[1] <= (1 - sparsity) * len(r) * len(c) + 1e-9
    cut = cuts[np.argmax(fits) if fits.any() else -1]
    return r > cut, c > cut


def sent_entries(kept: Mask, layout: Layout) -> Mask:
    """Return the mask of the sent entries, given the kept structures."""
    count = sum(sum(tensor.shape[:2]) for tensor in tables(layout))
    if len(kept) != count:
        raise WireError(f"a reply speaks of {len(kept)} structures, the model has {count}")
    out = np.ones(layout.size, np.bool_)
    at = 0
    for tensor in tables(layout):
        rows, columns = tensor.shape[:2]
        cells = np.outer(kept[at : at + rows], kept[at + rows : at + rows + columns])
        out[tensor.slice] = np.repeat(cells.ravel(), tensor.size // cells.size)
        at += rows + columns
    return out


def _update(message: Message, layout: Layout) -> Sparse:
    indices = np.flatnonzero(sent_entries(message.positions("kept").mask(), layout))
    return Sparse(layout.size, indices, message.vector("values", len(indices)))


def _divergence(start: Vector, trained: Vector, layout: Layout) -> float:
    """Return the relative change of the weights over the tensors that have structures."""
    spans = [t.slice for t in tables(layout)]
    ratios = (np.abs(trained[s] - start[s]).sum() / max(np.abs(trained[s]).sum(), 1e-12) for s in spans)
    return math.sqrt(sum(map(float, ratios)))


def _significance(sent: Sparse, start: Vector) -> float:
    """Return the sum of the sent entries relative to the sum of the weights."""
    return math.sqrt(abs(float(sent.values.sum()) / (float(start.sum()) or 1e-12)))
