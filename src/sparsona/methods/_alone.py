"""Methods whose clients train one expert alone: nothing travels, and only the first turn trains."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sparsona.errors import InputError
from sparsona.experts.alone import ExpertName, constant_answer, train_expert
from sparsona.experts.refitted import Refitted
from sparsona.message import Message
from sparsona.method import Arrival, ClientId, Fit, Method, Model, Queries, ServerContext, Steps, Task
from sparsona.training.local import Local


@dataclass(frozen=True)
class AloneState:
    """The client's expert, once it is trained."""

    expert: Refitted | None = None


@dataclass(frozen=True)
class LocalExpert(Method[None, AloneState], ABC):
    """A method whose clients train a named expert; the server sends and learns nothing."""

    alone: ClassVar[bool] = True
    expert: ClassVar[ExpertName]
    unused: ClassVar[tuple[str, ...]] = ("lr",)

    def start_server(self, task: Task) -> None:
        """The server remembers nothing."""
        return None

    def start_client(self, task: Task, client: ClientId) -> AloneState:
        """A client begins without an expert."""
        return AloneState()

    def send(self, server: None, to: ClientId, context: ServerContext) -> Message:
        """Send nothing."""
        return Message()

    def fit(self, state: AloneState, down: Message, local: Local) -> Fit[AloneState]:
        """Train the expert in the client's first turn; later turns change nothing."""
        expert = state.expert or train_expert(self.expert, local)
        return Fit(AloneState(expert), Message(), expert)

    def aggregate(self, server: None, arrivals: Sequence[Arrival], context: ServerContext) -> None:
        """Learn nothing."""
        return None

    def queries(self, steps: Steps) -> Queries:
        """Refuse a privacy budget."""
        raise InputError(f"a {self.expert} model is not trained by gradients: it has no private form, choose local")

    def personal_model(self, state: AloneState, down: Message, local: Local) -> Model:
        """Use the client's expert; the constant answer of its rows before its first turn."""
        return state.expert or constant_answer(local)
