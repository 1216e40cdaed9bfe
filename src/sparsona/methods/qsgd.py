"""QSGD: Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017, here under FedAvg: a client's update is rounded at random to a few steps of its norm, so that
its mean is right, and small whole numbers travel."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import GlobalModel, received
from sparsona.ops.mean import weighted_mean
from sparsona.ops.quantise import Quantised, quantise, restored
from sparsona.ops.server import ServerState
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class QSGD(GlobalModel[None]):
    """FedAvg whose updates are rounded at random to a few levels of a norm; integers travel, entropy-coded."""

    levels: int = option(7, "number of levels of the norm", ge=1, le=32767)
    bucket: int = option(512, "number of entries that share a norm (0: the whole tensor)", ge=0)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        start, layout = received(down, local), local.layout
        trained = local.train(start).weights
        sent = quantise(trained - start, layout.lengths, self.levels, self.bucket, local.rng("qsgd"))
        reply = Message(steps=sent.steps, norms=sent.norms, examples=local.examples)
        return Fit(None, reply, trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout = context.task.layout
        mean = weighted_mean((a.message.examples(), self._update(a.message, layout)) for a in arrivals)
        return server.moved(mean, self.server)

    def _update(self, message: Message, layout: Layout) -> Vector:
        steps = message.numbers("steps")
        if steps.dtype != np.int16:
            raise WireError(f"the steps of a reply are {steps.dtype}, expected int16")
        return restored(Quantised(message.vector("norms"), steps), layout.lengths, self.levels, self.bucket)
