"""QSGD: Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017, here under FedAvg: a client's update is rounded at random to a few steps of its norm, so that
its mean is right, and small whole numbers travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import Averaging, ServerState, received
from sparsona.ops.buffers import buffers_of, with_mean_buffers
from sparsona.ops.mean import weighted_mean
from sparsona.ops.quantise import Quantised, quantise, restored
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class QSGD(Averaging[None]):
    """FedAvg whose updates are rounded to `levels` steps of the norm of each `bucket` of entries (0: each tensor).

    The steps travel as whole numbers, entropy-coded; `sparsona.ops.quantise.elias_bits` is what the paper's code takes.
    """

    levels: Annotated[int, Field(ge=1, le=32767)] = 7
    bucket: Annotated[int, Field(ge=0)] = 512

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        start, layout = received(down, local), local.layout
        trained = local.train(start).weights
        update = (trained - start)[: layout.trainable]
        sent = quantise(update, _sizes(layout), self.levels, self.bucket, local.rng("qsgd"))
        parts = buffers_of(trained, layout)
        return Fit(None, Message(steps=sent.steps, norms=sent.norms, examples=local.examples, **parts), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout = context.task.layout
        mean = weighted_mean((a.message.examples(), self._update(a.message, layout)) for a in arrivals)
        weights = server.weights.copy()
        weights[: layout.trainable] += mean
        return ServerState(with_mean_buffers(weights, arrivals, layout))

    def personal_model(self, client: None, down: Message, local: Local) -> Vector:
        return received(down, local)

    def _update(self, message: Message, layout: Layout) -> Vector:
        steps = message.numbers("steps")
        if steps.dtype != np.int16:
            raise WireError(f"the steps of a reply are {steps.dtype}, expected int16")
        return restored(Quantised(message.vector("norms"), steps), _sizes(layout), self.levels, self.bucket)


def _sizes(layout: Layout) -> list[int]:
    return [tensor.size for tensor in layout.parameters]
