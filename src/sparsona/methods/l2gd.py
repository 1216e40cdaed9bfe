"""L2GD: Hanzely, Richtarik, "Federated Learning of a Mixture of Global and Local Models", 2020. Minimises
mean_n f_n(w_n) + lam/2N * sum_n |w_n - mean w|^2: at each step a coin decides, for all alike, between a gradient step
on the own data and one towards the mean. The latter leaves the mean where it is, so only a change of side travels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from sparsona.errors import InputError
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
from sparsona.ops.mean import weighted_mean
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The mean of the models, once there is one."""

    mean: Vector | None


@dataclass(frozen=True)
class ClientState:
    """The client's model w_n, once it has one."""

    weights: Vector | None


@METHODS.add
@dataclass(frozen=True)
class L2GD(Method[ServerState, ClientState]):
    """One model per client, drawn to the mean; a coin decides between a step on the data and one towards the mean.

    A round is all steps between two exchanges: on average 1/(1-p) towards the mean, then 1/p on batches. training.lr is
    the local step eta / (N (1-p)); a step towards the mean is then lr * lam * (1-p) / p.
    """

    buffers: ClassVar[Literal["averaged", "own"]] = "own"
    unused: ClassVar[tuple[str, ...]] = ("epochs", "steps")

    lam: float = option(0.1, "strength of the pull towards the mean", ge=0)
    p: float = option(0.05, "probability of a step towards the mean", gt=0, lt=1)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(None)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(None)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message() if server.mean is None else Message(mean=server.mean)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        steps = int(local.task.chance.rng("l2gd/local", round=local.round).geometric(self.p))
        trained = local.train(self.personal_model(state, down, local), replace(local.config, steps=steps)).weights
        return Fit(ClientState(trained), Message(weights=trained), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size = context.task.layout.size
        return ServerState(weighted_mean((1, a.message.vector("weights", size)) for a in arrivals))

    def queries(self, steps: Steps) -> Queries:
        return Queries(steps(steps=1) / self.p, once=math.ceil(steps(steps=20) / self.p))

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        """Return w_n after the steps towards the mean at the beginning of this round."""
        mean = down.vector("mean", local.layout.size) if "mean" in down else local.task.initial
        if state.weights is None:
            return mean
        share = local.rate * self.lam * (1 - self.p) / self.p
        if share > 1:
            raise InputError(f"l2gd steps {share:g} of the way to the mean at once: lower lam or lr, or raise p")
        steps = int(local.task.chance.rng("l2gd/mean", round=local.round).geometric(1 - self.p))
        return mean + np.float32((1 - share) ** steps) * (state.weights - mean)
