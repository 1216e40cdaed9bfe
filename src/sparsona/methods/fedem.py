"""FedEM: Marfoq, Neglia, Bellet, Kameni, Vidal, "Federated Multi-Task Learning under a Mixture of Distributions",
NeurIPS 2021. A few shared models; each client mixes their predictions by its own weights, found by
expectation-maximisation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from sparsona.message import Message, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.ops.mean import weighted_mean
from sparsona.ops.mixture import Mixture, initial_models
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class ServerState:
    """The shared models theta_m."""

    models: tuple[Vector, ...]


@dataclass(frozen=True)
class ClientState:
    """pi, the shares of the models in the client's mixture."""

    mixture: Vector


@METHODS.add
@dataclass(frozen=True)
class FedEM(Method[ServerState, ClientState]):
    """A private mixture of shared models.

    E: q_nm ~ pi_m exp(-loss_m(x_n)), pi_m = mean_n q_nm. M: each model is trained on the loss weighted by q_m. A new
    client takes the E-step only.
    """

    private: ClassVar[tuple[str, ...]] = ("mixture",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"
    needs_classes: ClassVar[str] = "fedem mixes the probabilities of classes"
    no_budget: ClassVar[str] = "fedem weighs each row by its raw losses"

    learners: int = option(3, "number of shared models", ge=1)

    def start_server(self, task: Task) -> ServerState:
        return ServerState(initial_models(task.initial, task.layout, task.chance, self.learners))

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(np.full(self.learners, 1 / self.learners, np.float32))

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(**{f"model{m}": model for m, model in enumerate(server.models)})

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        own, share = self._expect(state, down, local)
        models = tuple(
            local.train(start, importance=share[:, m], stream=f"learner {m}").weights
            for m, start in enumerate(self._models(down, local))
        )
        parts = {f"model{m}": model for m, model in enumerate(models)}
        return Fit(own, Message(examples=local.examples, **parts), Mixture(models, own.mixture))

    def adapt(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        own, _ = self._expect(state, down, local)
        return Fit(own, Message(), Mixture(self._models(down, local), own.mixture))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        size = context.task.layout.size
        means = (
            weighted_mean((a.message.examples(), a.message.vector(f"model{m}", size)) for a in arrivals)
            for m in range(self.learners)
        )
        return ServerState(tuple(means))

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Mixture:
        return Mixture(self._models(down, local), state.mixture)

    def max_numbers(self, task: Task) -> int:
        return (self.learners + 1) * task.layout.size + 4096

    def _models(self, down: Message, local: Local) -> tuple[Vector, ...]:
        return tuple(down.vector(f"model{m}", local.layout.size) for m in range(self.learners))

    def _expect(self, state: ClientState, down: Message, local: Local) -> tuple[ClientState, npt.NDArray[np.float64]]:
        losses = np.stack([local.losses(model) for model in self._models(down, local)], axis=1).astype(np.float64)
        scores = np.log(np.maximum(state.mixture, 1e-12)) - losses
        share = np.exp(scores - scores.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        return ClientState(share.mean(0).astype(np.float32)), share
