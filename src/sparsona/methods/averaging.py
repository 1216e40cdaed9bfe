"""Methods with one global model, which all clients download."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparsona.message import Message, Vector
from sparsona.method import Arrival, C, ClientId, Method, Model, ServerContext, Task
from sparsona.ops.robust import MergeRule, merged
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
class GlobalModel(Method[ServerState, C], ABC):
    """A method whose server sends one global model to all, and whose clients use it unless the method says otherwise.

    How clients train and what becomes of their replies is up to the method.
    """

    server: ServerStep = field(default=PLAIN_STEP, kw_only=True)

    def start_server(self, task: Task) -> ServerState:
        """The server has the initial model."""
        return ServerState(task.initial)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        """Send the global model."""
        return Message(weights=server.weights)

    def personal_model(self, state: C, down: Message, local: Local) -> Model:
        """Use the global model."""
        return received(down, local)


@dataclass(frozen=True)
class Averaging(Method[ServerState, C], ABC):
    """A method whose global model is the mean of the clients' models, as FedAvg's; the clients are up to the method."""

    server: ServerStep = field(default=PLAIN_STEP, kw_only=True)
    merge: MergeRule = field(default="mean", kw_only=True)

    def start_server(self, task: Task) -> ServerState:
        """The server has the initial model."""
        return ServerState(task.initial)

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        """Send the global model."""
        return Message(weights=server.weights)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        """Step towards the mean of the models that came."""
        return server.towards(mean_weights(server.weights, arrivals, self.merge), self.server)
