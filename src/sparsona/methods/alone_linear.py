"""Alone with a linear model: every client fits logistic or ridge regression on its own rows, and nothing travels."""

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
class AloneLinear(Method[None, AloneState]):
    """Each client fits logistic or ridge regression on its own rows; nothing travels."""

    alone: ClassVar[bool] = True

    def start_server(self, task: Task) -> None:
        return None

    def start_client(self, task: Task, client: ClientId) -> AloneState:
        return AloneState()

    def send(self, server: None, to: ClientId, context: ServerContext) -> Message:
        return Message()

    def fit(self, state: AloneState, down: Message, local: Local) -> Fit[AloneState]:
        return fit_alone("linear", state, local)

    def aggregate(self, server: None, arrivals: Sequence[Arrival], context: ServerContext) -> None:
        return None

    def personal_model(self, state: AloneState, down: Message, local: Local) -> Model:
        return model_alone(state, local)
