"""kNN-Per: votes by hand, the weight that validation rows choose, and FedAvg where votes weigh nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import sparsona
from sparsona.errors import InputError
from sparsona.message import Vector
from sparsona.methods.knn_per import KnnPer, Neighbours

ALIKE: dict[str, Any] = {"data": "digits", "clients": 4, "rounds": 2, "evaluation": {"every": 0}}


class Net:
    """A net whose embedding is its input, and whose probabilities are equal."""

    def __call__(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(inputs), 2)

    def embed(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


def test_neighbours_vote_by_their_distance() -> None:
    stored = np.array([[1.0], [3.0], [100.0]], np.float32)
    model = Neighbours(np.zeros(1, np.float32), stored, np.array([0, 1, 1]), neighbours=2, share=0.5)
    (found,) = model.predict(Net(), torch.tensor([[0.0]])).exp().tolist()
    vote = math.exp(-1) / (math.exp(-1) + math.exp(-3))
    assert found == pytest.approx([0.5 * vote + 0.25, 0.5 * (1 - vote) + 0.25])


def test_votes_that_weigh_nothing_are_fedavg() -> None:
    ours, plain = sparsona.run(KnnPer(share=0.0), **ALIKE), sparsona.run("fedavg", **ALIKE)
    assert ours.summary["accuracy"]["pre"]["mean"] == pytest.approx(plain.summary["accuracy"]["pre"]["mean"])
    assert ours.summary["bytes"] == plain.summary["bytes"]


def test_clients_choose_the_weight_and_gain_by_it() -> None:
    shared = {**ALIKE, "clients": 10, "rounds": 10, "partition": "dirichlet-classes:0.3"}
    ours, plain = sparsona.run("knn-per", **shared), sparsona.run("fedavg", **shared)
    shares = {model.model.share for model in ours.models.values() if isinstance(model.model, Neighbours)}
    assert len(shares) > 1, "each client chooses its own"
    assert ours.summary["accuracy"]["pre"]["mean"] > plain.summary["accuracy"]["pre"]["mean"] + 0.01


def test_it_needs_classes() -> None:
    rows = {name: (np.ones((20, 2), np.float32), np.linspace(0.1, 0.9, 20, dtype=np.float32)) for name in "ab"}
    with pytest.raises(InputError, match="classes"):
        sparsona.run("knn-per", data=rows, task="regression", rounds=1)
