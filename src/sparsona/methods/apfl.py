"""APFL: Deng, Kamani, Mahdavi, "Adaptive Personalized Federated Learning", 2020. FedAvg; beside it each client trains
a model v of its own through the mixture alpha v + (1 - alpha) w with the shared model w, and uses the mixture.

The paper mixes weights. Its authors' code (FedTorch) mixes the two models' outputs: `mix=outputs`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch

from sparsona.errors import InputError
from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Model, Queries, Steps, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import Averaging, received
from sparsona.ops.mixture import mixed
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors


@dataclass(frozen=True)
class ClientState:
    """The client's own model v, and its share alpha of the mixture."""

    own: Vector
    alpha: float


@dataclass(frozen=True)
class OutputMixture:
    """Predicts by the weighted sum of the models' outputs, before any softmax."""

    models: tuple[Vector, ...]
    mixture: Vector

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Return the mixed outputs."""
        return mixed([forward(model, inputs) for model in self.models], self.mixture, "regression")


@METHODS.add
@dataclass(frozen=True)
class APFL(Averaging[ClientState]):
    """FedAvg plus one own model per client, used as a mixture with the global model."""

    private: ClassVar[tuple[str, ...]] = ("own",)
    buffers: ClassVar[Literal["averaged", "own"]] = "own"

    alpha: float = option(0.5, "share of the client's own model in the mixture", ge=0, le=1)
    adaptive: bool = option(True, "each client adapts its alpha by one gradient step per round, within 0 and 1")
    mix: Literal["weights", "outputs"] = option("weights", "mixture of weights (paper) or of outputs (authors' code)")

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState(task.initial, self.alpha)

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start, rate = received(down, local), np.float32(local.rate)
        alpha = self._moved_share(state, start, local) if self.adaptive else state.alpha
        share = np.float32(alpha)

        def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
            w, v = vectors
            if self.mix == "outputs":
                moved = v - rate * batches[0].blended(v, w, alpha)[0]
            else:
                moved = v - rate * share * batches[0].gradient(_mixture(v, w, alpha))
            return w - rate * batches[0].gradient(w), moved

        w, v = local.iterate((start, state.own), step)
        reply = Message(weights=w, examples=local.examples)
        return Fit(ClientState(v, alpha), reply, self._used(v, w, alpha))

    def queries(self, steps: Steps) -> Queries:
        if self.mix == "outputs":
            raise InputError("apfl with mix=outputs needs more than gradients of one model: set mix=weights")
        return Queries(2 * steps() + self.adaptive)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Model:
        return self._used(state.own, received(down, local), state.alpha)

    def _used(self, own: Vector, shared: Vector, alpha: float) -> Model:
        """Return the mixture of the two models."""
        if self.mix == "weights":
            return _mixture(own, shared, alpha)
        return OutputMixture((own, shared), np.array([alpha, 1 - alpha], np.float32))

    def _moved_share(self, state: ClientState, w: Vector, local: Local) -> float:
        """Return alpha after one step along the derivative of the mixture's loss, on one batch."""
        if self.mix == "weights":
            slope = local.gradient(_mixture(state.own, w, state.alpha), batch=local.config.batch)
            moved = state.alpha - local.rate * float(np.dot(state.own - w, slope))
            return float(np.clip(moved, 0, 1))
        found: list[float] = []

        def look(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
            found.append(batches[0].blended(state.own, w, state.alpha)[1])
            return vectors

        local.iterate((w,), look, replace(local.config, steps=1, repeats=1), stream="alpha")
        return float(np.clip(state.alpha - local.rate * found[0], 0, 1))


def _mixture(own: Vector, shared: Vector, alpha: float) -> Vector:
    out: Vector = np.float32(alpha) * own + np.float32(1 - alpha) * shared
    return out
