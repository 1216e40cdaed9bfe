"""FedAsync: Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2019. Each model that arrives is mixed into the
global one, the less the more the global one has moved since: x <- (1 - alpha s(t - tau)) x + alpha s(t - tau) x_new."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import received
from sparsona.ops.mean import weighted_mean
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.step import Proximal

DEFAULT_A = {"constant": 0.0, "polynomial": 0.5, "hinge": 10.0}


@dataclass(frozen=True)
class ServerState:
    """The global model, and the number of models that it has mixed in."""

    weights: Vector
    version: int


@METHODS.add
@dataclass(frozen=True)
class FedAsync(Method[ServerState, None]):
    """One global model that mixes in each client's model on arrival, with less weight for late models.

    The weight of a model that is D models late is alpha s(D): s is 1 (constant), (1 + D)^-a (polynomial), or 1 up to
    D = b and 1 / (a (D - b) + 1) beyond (hinge).
    """

    staleness: Literal["constant", "polynomial", "hinge"] = option(
        "polynomial", "weight s(D) of a model that is D models late"
    )
    alpha: float = option(0.6, "weight of a model that is not late", gt=0, le=1)
    a: float | None = option(None, "parameter a of s (not given: 0.5, and 10 for hinge)", ge=0)
    b: float = option(4.0, "lateness up to which hinge keeps the full weight", ge=0)
    rho: float = option(0.005, "strength of the proximal term that keeps a client near its start", ge=0)
    variant: Literal["paper", "repository"] = option(
        "paper", "repository: as SPFL's authors, mix with 0.8 (rounds late + 1)^-1/2 and average the mixtures"
    )

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial, 0)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights, version=server.version)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        start = received(down, local)
        pull = Proximal(start, self.rho) if self.rho and self.variant == "paper" else None
        trained = local.train(start, proximal=pull).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        x, version, size = server.weights, server.version, context.task.layout.size
        if self.variant == "repository":
            shares = ((0.8 * (context.round - a.round + 1) ** -0.5, a.message) for a in arrivals)
            return ServerState(
                weighted_mean((m.examples(), _mixed(x, m.vector("weights", size), s)) for s, m in shares),
                version + len(arrivals),
            )
        for a in arrivals:
            x = _mixed(x, a.message.vector("weights", size), self.share(version - a.sent.integer("version")))
            version += 1
        return ServerState(x, version)

    def share(self, late: int) -> float:
        """alpha s(D)."""
        a, late = DEFAULT_A[self.staleness] if self.a is None else self.a, max(late, 0)
        if self.staleness == "hinge":
            return self.alpha / (a * (late - self.b) + 1) if late > self.b else self.alpha
        return self.alpha * (1 + late) ** -a if self.staleness == "polynomial" else self.alpha

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return received(down, local)


def _mixed(x: Vector, new: Vector, share: float) -> Vector:
    out: Vector = np.float32(1 - share) * x + np.float32(share) * new
    return out
