"""L2GD: Hanzely, Richtarik, "Federated Learning of a Mixture of Global and Local Models", 2020. Minimises
mean_n f_n(w_n) + lam/2N * sum_n |w_n - mean w|^2: at each step a coin decides, for all alike, between a gradient step
on the own data and one towards the mean. The latter leaves the mean where it is, so only a change of side travels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from sparsona.errors import InputError
from sparsona.local import Local
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Task, Turn
from sparsona.methods import METHODS
from sparsona.ops.mean import weighted_mean


@dataclass(frozen=True)
class Server:
    """The mean of the models, once there is one."""

    mean: Vector | None


@dataclass(frozen=True)
class Own:
    """The client's model w_n, once it has one."""

    weights: Vector | None


@METHODS.add
@dataclass(frozen=True)
class L2GD(Method[Server, Own]):
    """Local models drawn to their mean by a penalty `lam`; a step is one towards the mean with probability `p`.

    A round is all the steps between two exchanges: on average 1/(1-p) towards the mean, then 1/p on batches of the
    recipe. The recipe's rate is the local step eta / (N (1-p)); a step towards the mean is then lr * lam * (1-p) / p.
    """

    lam: Annotated[float, Field(ge=0)] = 0.1
    p: Annotated[float, Field(gt=0, lt=1)] = 0.05

    def start_server(self, task: Task) -> Server:
        return Server(None)

    def start_client(self, task: Task, client: ClientId) -> Own:
        return Own(None)

    def send(self, server: Server, to: ClientId, turn: Turn) -> Message:
        return Message() if server.mean is None else Message(mean=server.mean)

    def fit(self, client: Own, down: Message, local: Local) -> Fit[Own]:
        steps = int(local.task.chance.rng("l2gd/local", round=local.round).geometric(self.p))
        trained = local.train(self.personal(client, down, local), replace(local.recipe, steps=steps)).weights
        return Fit(Own(trained), Message(weights=trained), trained)

    def merge(self, server: Server, arrivals: Sequence[Arrival], turn: Turn) -> Server:
        size = turn.task.layout.size
        return Server(weighted_mean((1, a.message.vector("weights", size)) for a in arrivals))

    def personal(self, client: Own, down: Message, local: Local) -> Vector:
        """w_n after the steps towards the mean that stand at the beginning of this round."""
        mean = down.vector("mean", local.layout.size) if "mean" in down else local.task.initial
        if client.weights is None:
            return mean
        share = local.rate * self.lam * (1 - self.p) / self.p
        if share > 1:
            raise InputError(f"l2gd steps {share:g} of the way to the mean at once: lower lam or lr, or raise p")
        steps = int(local.task.chance.rng("l2gd/mean", round=local.round).geometric(1 - self.p))
        return mean + np.float32((1 - share) ** steps) * (client.weights - mean)
