"""FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017. The server's model goes out, trained models come back, their mean is the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.ops.mean import MergeRule, merged
from sparsona.ops.server import PLAIN_STEP, ServerState, ServerStep
from sparsona.options import option
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class FedAvg(Method[ServerState, None]):
    """One global model: the mean of the clients' models, weighted by their numbers of examples."""

    late: Literal["average", "drop"] = option("average", "average or drop models that arrive after their round")
    merge: MergeRule = "mean"
    server: ServerStep = PLAIN_STEP

    def start_server(self, task: Task) -> ServerState:
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights)

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(down.vector("weights", local.layout.size)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        if self.late == "drop":
            arrivals = [a for a in arrivals if a.round == context.round]
        models = ((a.message.examples(), a.message.vector("weights", len(server.weights))) for a in arrivals)
        return server.towards(merged(self.merge, models, server.weights), self.server) if arrivals else server

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return down.vector("weights", local.layout.size)
