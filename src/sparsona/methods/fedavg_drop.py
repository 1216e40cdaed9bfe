"""FedAvg without late models: the row "FedAvg (Sync)" of "Personalized Heterogeneous Federated Learning with Gradient
Similarity". A model that comes after its round is thrown away. In that row stragglers take part when they are not
delayed, which is a matter of the schedule (`straggling=absent`); where every reply of theirs is late, none counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsona.local import Local
from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Task, Turn
from sparsona.methods import METHODS
from sparsona.methods._averaging import Averaging, Server, received


@METHODS.add
@dataclass(frozen=True)
class FedAvgDrop(Averaging[None]):
    """FedAvg that throws late models away."""

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, client: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), trained)

    def merge(self, server: Server, arrivals: Sequence[Arrival], turn: Turn) -> Server:
        on_time = [a for a in arrivals if a.round == turn.round]
        return super().merge(server, on_time, turn) if on_time else server

    def personal(self, client: None, down: Message, local: Local) -> Vector:
        return received(down, local)
