"""Alone with trees: every client trains boosted trees on its own rows, and nothing travels.

Ke and others, "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NeurIPS 2017. On tables this is the way
alone that a federation must beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sparsona.message import Message
from sparsona.method import Arrival, ClientId, Fit, Method, Model, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.methods._alone import AloneState, fit_alone, model_alone
from sparsona.training.local import Local


@METHODS.add
@dataclass(frozen=True)
class AloneTrees(Method[None, AloneState]):
    """Each client trains LightGBM on its own rows, stopped early and refitted; nothing travels."""

    alone: ClassVar[bool] = True

    def start_server(self, task: Task) -> None:
        return None

    def start_client(self, task: Task, client: ClientId) -> AloneState:
        return AloneState()

    def send(self, server: None, to: ClientId, context: ServerContext) -> Message:
        return Message()

    def fit(self, state: AloneState, down: Message, local: Local) -> Fit[AloneState]:
        return fit_alone("trees", state, local)

    def aggregate(self, server: None, arrivals: Sequence[Arrival], context: ServerContext) -> None:
        return None

    def personal_model(self, state: AloneState, down: Message, local: Local) -> Model:
        return model_alone(state, local)
