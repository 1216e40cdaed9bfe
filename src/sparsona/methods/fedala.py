"""FedALA: Zhang, Hua, Wang, Song, Xue, Ma, Guan, "FedALA: Adaptive Local Aggregation for Personalized Federated
Learning", AAAI 2023. FedAvg; a client starts from its old model plus W times the way to the global one, and learns in
which places of the last layers the global one helps (W in 0..1).

As in the authors' code (TsingZ0/FedALA, utils/ALA.py): an epoch over 80 % of the client's examples per round; the first
time, epochs until the losses of the last ten have a standard deviation below 0.1, which are eleven at least. Theirs is
the loss of an epoch's last batch, always of the same examples. Here batches are drawn anew, so it is the epoch's mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Task
from sparsona.methods import METHODS
from sparsona.methods.averaging import Averaging, received
from sparsona.ops.parts import last_layers
from sparsona.options import option
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors


@dataclass(frozen=True)
class ClientState:
    """The model that the client trained last, and its weights W of the global one."""

    old: Vector | None = None
    weights: Vector | None = None


@METHODS.add
@dataclass(frozen=True)
class FedALA(Averaging[ClientState]):
    """FedAvg whose clients learn, entry by entry in the last layers, how much of the global model to take."""

    private: ClassVar[tuple[str, ...]] = ("weights",)
    no_budget: ClassVar[str] = "fedala stops by raw losses"

    layers: int = option(1, "number of last layers with learnt weights W (at most all but the first)", ge=1)
    ala_share: float = option(0.8, "share of the client's training examples on which W is learnt", gt=0, le=1)
    ala_epochs: int = option(1, "epochs of W per round", ge=1)
    ala_window: int = option(10, "the first time, W is learnt until the losses of this many epochs are settled", ge=2)
    ala_settled: float = option(0.1, "standard deviation of these losses below which they are settled", gt=0)
    ala_most: int = option(100, "most epochs of W the first time, settled or not", ge=1)
    ala_lr: float = option(1.0, "learning rate of W", gt=0)

    def start_client(self, task: Task, client: ClientId) -> ClientState:
        return ClientState()

    def fit(self, state: ClientState, down: Message, local: Local) -> Fit[ClientState]:
        start, weights = self._aggregated(state, down, local)
        trained = local.train(start).weights
        reply = Message(weights=trained, examples=local.examples)
        return Fit(ClientState(trained, weights), reply, trained)

    def personal_model(self, state: ClientState, down: Message, local: Local) -> Vector:
        return self._aggregated(state, down, local)[0]

    def _aggregated(self, state: ClientState, down: Message, local: Local) -> tuple[Vector, Vector | None]:
        """Return old + W (global - old), with W after its steps along the gradient; first, the global model."""
        shared = received(down, local)
        if state.old is None:
            return shared, None
        old, rate = state.old, np.float32(self.ala_lr)
        places = last_layers(local.layout, min(self.layers, len(local.layout.layers) - 1))
        way = np.where(places, shared - old, np.float32(0))
        base = np.where(places, old, shared)
        losses: list[float] = []
        seen: list[tuple[float, int]] = []

        def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
            (w,), (batch,) = vectors, batches
            moved = np.clip(w - rate * batch.gradient(base + w * way) * way, 0, 1)
            seen.append((float(batch.total), batch.seen))
            return (moved,)

        # W follows the gradient of the loss alone: decay and clipping are for the weights of the net.
        config = replace(local.config, steps=None, epochs=1, repeats=1, weight_decay=0.0, clip=None)
        some = local.some(self.ala_share, "ala")
        weights = np.ones_like(shared) if state.weights is None else state.weights
        while not self._enough(losses, state.weights is None, local.max_epochs):
            (weights,) = some.iterate((weights,), step, config, stream=f"ala/{len(losses)}")
            total, count = np.sum(seen, axis=0)
            losses.append(total / count)
            seen.clear()
        return base + weights * way, weights

    def _enough(self, losses: Sequence[float], first: bool, allowed: int | None) -> bool:
        """True if W has had its epochs: a fixed number, but the first time until its loss settles."""
        most = self.ala_most if first else self.ala_epochs
        if len(losses) >= (most if allowed is None else min(most, allowed)):
            return True
        settled = len(losses) > self.ala_window and np.std(losses[-self.ala_window :]) < self.ala_settled
        return first and bool(settled)
