"""kNN-Per: Marfoq, Neglia, Kameni, Vidal, "Personalized Federated Learning through Local Memorization", ICML 2022.
FedAvg; a client mixes the global model's probabilities with the votes of its nearest training examples."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from sparsona.data.dataset import Array, Indices
from sparsona.layout import Forward
from sparsona.message import Message, Vector
from sparsona.method import Fit
from sparsona.methods import METHODS
from sparsona.methods.averaging import Averaging, received
from sparsona.ops.mixture import mixed
from sparsona.options import option
from sparsona.training.local import Local


@dataclass(frozen=True)
class Neighbours:
    """Predicts share * votes + (1 - share) * softmax(net); a neighbour at distance d votes with weight exp(-d)."""

    weights: Vector
    embeddings: Array
    labels: Indices
    neighbours: int
    share: float

    def predict(self, forward: Forward, inputs: torch.Tensor) -> torch.Tensor:
        """Return log probabilities."""
        stored, labels = (torch.tensor(part, device=inputs.device) for part in (self.embeddings, self.labels))
        distances = torch.cdist(forward.embed(self.weights, inputs), stored)
        nearest = distances.topk(min(self.neighbours, len(stored)), largest=False)
        own = forward(self.weights, inputs).softmax(1)
        votes = torch.zeros_like(own).scatter_add(1, labels[nearest.indices], nearest.values.neg().softmax(1))
        return (self.share * votes + (1 - self.share) * own).clamp(min=1e-30).log()


@METHODS.add
@dataclass(frozen=True)
class KnnPer(Averaging[None]):
    """A global model, and votes of the client's nearest training examples among its embeddings."""

    needs_classes: ClassVar[str] = "knn-per votes for classes"
    no_budget: ClassVar[str] = "knn-per keeps its training rows in the model"

    neighbours: int = option(10, "number of nearest training examples that vote", ge=1)
    share: float | None = option(
        None, "weight of the votes (not given: each client chooses 0, 0.1, ... or 1 on its validation rows)", ge=0, le=1
    )

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        trained = local.train(received(down, local)).weights
        return Fit(None, Message(weights=trained, examples=local.examples), self._model(trained, local))

    def personal_model(self, state: None, down: Message, local: Local) -> Neighbours:
        return self._model(received(down, local), local)

    def _model(self, weights: Vector, local: Local) -> Neighbours:
        embeddings = local.embed(weights, local.inputs()).cpu().numpy()
        votes = Neighbours(weights, embeddings, local.targets(), self.neighbours, 1.0)
        if self.share is not None:
            return replace(votes, share=self.share)
        ours, own = local.validation_outputs(votes), local.validation_outputs(weights)
        return replace(votes, share=best_share(ours, own, local.validation_targets()))


def best_share(one: torch.Tensor, other: torch.Tensor, targets: Array) -> float:
    """Return the share of `one`, of 0, 0.1, ..., 1, for which the mixture of both outputs is right most often.

    Few rows leave many ties, of which the mean is taken. Without rows it is 0.5.

    >>> sure, wrong = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.2, 0.8]]).log()
    >>> round(best_share(sure, wrong, np.array([0])), 2)
    0.75
    """
    shares = np.linspace(0, 1, 11)
    mixtures = (mixed([one, other], np.array([share, 1 - share], np.float32)) for share in shares)
    right = np.array([(mixture.argmax(1).numpy() == targets).sum() for mixture in mixtures])
    return float(shares[right == right.max()].mean())
