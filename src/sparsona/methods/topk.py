"""Top-k with error feedback: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, under FedAvg. A
client sends the largest entries of its update and keeps the rest for later; the server sends its whole model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparsona.message import Message, Sparse, Vector
from sparsona.method import Arrival, ClientId, Fit, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._feedback import trained_with
from sparsona.methods.averaging import GlobalModel, received
from sparsona.ops.elementwise import elementwise_mean
from sparsona.ops.packed import without
from sparsona.ops.rounding import Values, rounded
from sparsona.ops.server import ServerState
from sparsona.ops.topk import top_supports
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ClientState:
    """What was not sent yet."""

    residual: Vector


@METHODS.add
@dataclass(frozen=True)
class TopK(GlobalModel[ClientState]):
    """FedAvg with top-k updates and error feedback."""

    feedback: ClassVar[str] = "residual"

    density: float = option(0.1, "share of each tensor's entries that is uploaded", gt=0, le=1)
    values: Values = "float32"

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(np.zeros_like(task.initial))

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start, layout = received(down, local), local.layout
        learnt = trained_with(state.residual, start, local)
        if learnt is None:
            return Fit(state, Message(), start)
        trained, wanted = learnt
        taken = Sparse.take(wanted, top_supports(wanted, layout.spans("tensor"), 1 - self.density))
        sent = rounded(taken, layout.lengths, self.values)
        reply = Message(update=sent, examples=local.examples)
        return Fit(ClientState(without(wanted, sent)), reply, trained.weights, if_lost=ClientState(wanted))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size = context.task.layout.size
        replies = ((a.message.examples(), a.message.sparse("update", size)) for a in arrivals)
        return server.moved(elementwise_mean(size, replies, absent=True), self.server)
