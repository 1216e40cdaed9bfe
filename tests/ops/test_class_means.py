"""Means of classes, and predictions by the nearest one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparsona.message import Positions, Vector
from sparsona.ops.class_means import ClassMeans, NearestMean

KNOWN = ClassMeans(Positions(3, np.array([0, 2])), np.array([[0, 0], [3, 4]], np.float32))
POINTS = torch.tensor([[0.0, 0.0], [3.0, 3.0]])


class Net:
    """A net whose embedding is its input, and whose outputs are all for class 1."""

    def __call__(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[0.0, 1.0, 0.0]]).expand(len(inputs), 3)

    def embed(self, weights: Vector, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


def test_the_nearest_mean_is_predicted() -> None:
    weights = np.zeros(1, np.float32)
    found = NearestMean(weights, KNOWN).predict(Net(), POINTS)
    assert found[0, [0, 2]].tolist() == pytest.approx([0, -25])
    assert torch.isfinite(found).all()
    assert found.argmax(1).tolist() == [0, 2]
    assert NearestMean(weights, ClassMeans.none(3, 2)).predict(Net(), POINTS).argmax(1).tolist() == [1, 1]


def test_classes_of_few_vectors_are_left_out() -> None:
    vectors, labels = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([1, 0, 1, 2])
    assert ClassMeans.of(vectors, labels, 3, least=2).known.indices.tolist() == [1]
    assert ClassMeans.of(vectors, labels, 3, least=2).rows.tolist() == [[2, 3]]
    assert ClassMeans.of(vectors, labels, 3, least=5).rows.shape == (0, 2)


def test_only_points_of_known_classes_stray() -> None:
    strays = KNOWN.strays(torch.tensor([[1.0, 3.0], [9.0, 9.0]]), torch.tensor([0, 1]))
    assert strays.tolist() == pytest.approx([5, 0])
