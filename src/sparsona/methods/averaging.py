"""Methods with one global model, which all clients download."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparsona.message import Message, Vector
from sparsona.method import Arrival, C, ClientId, Fit, Method, Model, ServerContext, Task
from sparsona.ops.mean import MergeRule, merged
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.training.local import Local


def received(down: Message, local: Local) -> Vector:
    """Return the global model of this downlink."""
    return down.vector("weights", local.layout.size)


def mean_weights(start: Vector, arrivals: Sequence[Arrival], rule: MergeRule) -> Vector:
    """Return sum n_k w_k / sum n_k over the replies, or their merge by another rule."""
    replies = ((a.message.examples(), a.message.vector("weights", len(start))) for a in arrivals)
    return merged(rule, replies, start)


@dataclass(frozen=True)
class Averaging(Method[ServerState, C], ABC):
    """FedAvg, but for what the method overrides: how clients train, what they remember and which model they use."""

    server: ServerStep = field(default=PLAIN_STEP, kw_only=True)
    merge: MergeRule = field(default="mean", kw_only=True)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> C:
        return None  # type: ignore[return-value]  # C is None in methods that do not override this

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: C, down: Message, local: Local) -> Fit[C]:
        trained = local.train(received(down, local)).weights
        return Fit(state, Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        return server.towards(mean_weights(server.weights, arrivals, self.merge), self.server)

    def personal_model(self, state: C, down: Message, local: Local) -> Model:
        return received(down, local)
