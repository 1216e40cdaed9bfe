"""kNN-Per: Marfoq, Neglia, Kameni, Vidal, "Personalized Federated Learning through Local Memorization", ICML 2022.
FedAvg; a client mixes the global model's probabilities with the votes of its nearest training examples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from sparsona.data.dataset import Array, Indices
from sparsona.errors import InputError
from sparsona.layout import Forward
from sparsona.message import Message, Vector
from sparsona.method import ClientId, Fit, Queries, Steps, Task
from sparsona.methods import METHODS
from sparsona.methods._averaging import Averaging, received
from sparsona.ops.server import ServerState
from sparsona.options import option
from sparsona.training.local import Local

SHARES = np.linspace(0, 1, 11)
"""The weights of the votes that a client tries on its validation rows."""


@dataclass(frozen=True)
class Neighbours:
    """Predicts share * votes + (1 - share) * softmax(net); a neighbour at distance d votes with weight exp(-d)."""

    weights: Vector
    embeddings: Array
    labels: Indices
    classes: int
    neighbours: int
    share: float

    def predict(self, forward: Forward, inputs: torch.Tensor) -> torch.Tensor:
        """Return log probabilities."""
        stored, labels = (torch.tensor(part, device=inputs.device) for part in (self.embeddings, self.labels))
        distances = torch.cdist(forward.embed(self.weights, inputs), stored)
        nearest = distances.topk(min(self.neighbours, len(stored)), largest=False)
        votes = torch.zeros(len(inputs), self.classes, device=inputs.device)
        votes.scatter_add_(1, labels[nearest.indices], nearest.values.neg().softmax(1))
        own = forward(self.weights, inputs).softmax(1)
        return (self.share * votes + (1 - self.share) * own).clamp(min=1e-30).log()


@METHODS.add
@dataclass(frozen=True)
class KnnPer(Averaging[None]):
    """A global model, and votes of the client's nearest training examples among its embeddings."""

    neighbours: int = option(10, "number of nearest training examples that vote", ge=1)
    share: float | None = option(
        None, "weight of the votes (not given: each client chooses 0, 0.1, ... or 1 on its validation rows)", ge=0, le=1
    )

    def start_server(self, task: Task) -> ServerState:
        if not task.classes:
            raise InputError("knn-per votes for classes: it needs a data set with classes")
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), self._model(trained, local))

    def queries(self, steps: Steps) -> Queries:
        raise InputError("knn-per keeps its training rows in the model: it has no private form")

    def personal_model(self, state: None, down: Message, local: Local) -> Neighbours:
        return self._model(received(down, local), local)

    def _model(self, weights: Vector, local: Local) -> Neighbours:
        embeddings = local.embed(weights, local.inputs()).cpu().numpy()
        alone = Neighbours(weights, embeddings, local.targets(), local.task.classes, self.neighbours, 1.0)
        return replace(alone, share=_best_share(alone, local) if self.share is None else self.share)


def _best_share(votes: Neighbours, local: Local) -> float:
    """The mean of the weights that get most validation rows right: few rows leave many ties."""
    if not len(targets := local.validation_targets()):
        return 0.5
    vote, own = (local.validation_outputs(replace(votes, share=share)).exp().numpy() for share in (1.0, 0.0))
    right = np.array([((share * vote + (1 - share) * own).argmax(1) == targets).sum() for share in SHARES])
    return float(SHARES[right == right.max()].mean())
