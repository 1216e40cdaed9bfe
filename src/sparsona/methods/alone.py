"""Methods whose clients train one expert alone: nothing travels, and only the first turn trains.

On tables, trees are the way alone that a federation must beat: Ke and others, "LightGBM: A Highly Efficient Gradient
Boosting Decision Tree", NeurIPS 2017. No model should be worse than the naive answer.
"""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sparsona.errors import InputError
from sparsona.experts.fits import ExpertName, constant_answer, train_expert
from sparsona.experts.models import Refitted
from sparsona.message import Message
from sparsona.method import Arrival, ClientId, Fit, Method, Model, Queries, ServerContext, Steps, Task
from sparsona.methods import METHODS
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
        return None

    def start_client(self, task: Task, client: ClientId) -> AloneState:
        return AloneState()

    def send(self, server: None, to: ClientId, context: ServerContext) -> Message:
        return Message()

    def fit(self, state: AloneState, down: Message, local: Local) -> Fit[AloneState]:
        expert = state.expert or train_expert(self.expert, local)
        return Fit(AloneState(expert), Message(), expert)

    def aggregate(self, server: None, arrivals: Sequence[Arrival], context: ServerContext) -> None:
        return None

    def queries(self, steps: Steps) -> Queries:
        raise InputError(f"a {self.expert} model is not trained by gradients: it has no private form, choose local")

    def personal_model(self, state: AloneState, down: Message, local: Local) -> Model:
        return state.expert or constant_answer(local)


@METHODS.named("alone-linear")
@dataclass(frozen=True)
class AloneLinear(LocalExpert):
    """Each client fits logistic or ridge regression on its own rows; nothing travels."""

    expert: ClassVar[ExpertName] = "linear"


@METHODS.named("alone-trees")
@dataclass(frozen=True)
class AloneTrees(LocalExpert):
    """Each client trains LightGBM on its own rows, stopped early and refitted; nothing travels."""

    expert: ClassVar[ExpertName] = "trees"


@METHODS.named("naive")
@dataclass(frozen=True)
class Naive(LocalExpert):
    """Each client answers with its class frequencies or its own mean; nothing travels."""

    expert: ClassVar[ExpertName] = "naive"
