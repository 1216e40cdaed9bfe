"""Sketches: what they hold, and that they find who is alike."""

from __future__ import annotations

import numpy as np
import pytest

from sparsona.errors import InputError
from sparsona.methods.pfednet.graph import knn_graph
from sparsona.methods.pfednet.sketch import blurred, feature_covariance, feature_mean, kernel_mean, label_counts


def test_labels() -> None:
    assert label_counts(np.array([1, 1, 3]), 4).tolist() == [0, 2, 0, 1]
    assert label_counts(np.array([1, 1, 3, 3]), 4, shares=True).tolist() == [0, 0.5, 0, 0.5]
    with pytest.raises(InputError, match="no classes to count"):
        label_counts(np.array([0.5]), 0)


def test_covariance_distances_are_those_of_the_matrices() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(50, 4)), rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4))
    matrices = [np.cov(x.T, bias=True) for x in (one, other)]
    ours = np.abs(feature_covariance(one) - feature_covariance(other)).sum()
    assert ours == pytest.approx(np.abs(matrices[0] - matrices[1]).sum(), rel=1e-5)


def test_kernel_distances_are_those_of_the_distributions() -> None:
    """Maximum mean discrepancy under the Gaussian kernel of width sqrt(features), against its plain formula."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(300, 3)), rng.normal(size=(250, 3)) + 1

    def kernel(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.exp(-np.square(a[:, None] - b).sum(2) / (2 * 3)).mean())

    plain = kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)
    waves = [kernel_mean(s, 4000, np.random.default_rng(2)) for s in (x, y)]
    assert float(np.square(waves[0] - waves[1]).sum()) == pytest.approx(plain, rel=0.1)


def test_means_and_kernels_find_the_groups_and_the_kernel_sees_more() -> None:
    rng = np.random.default_rng(3)
    moved = [rng.normal(size=(200, 5)) + 2 * (i % 2) for i in range(8)]
    wide = [rng.normal(size=(400, 5)) * (1 + 2 * (i % 2)) for i in range(8)]
    for clients, make in (
        (moved, feature_mean),
        (moved, lambda s: kernel_mean(s, 256, np.random.default_rng(4))),
        (wide, lambda s: kernel_mean(s, 256, np.random.default_rng(4))),
        (wide, feature_covariance),
    ):
        edges = knn_graph(np.stack([make(s) for s in clients]), 2).edges
        assert all(i % 2 == j % 2 for i, j in edges)


def test_noise_is_relative_and_can_be_none() -> None:
    sketch = np.full(1000, 10, np.float32)
    assert blurred(sketch, 0.0, np.random.default_rng(0)) is sketch
    assert float((blurred(sketch, 0.5, np.random.default_rng(0)) - sketch).std()) == pytest.approx(5, rel=0.1)
    assert not blurred(np.zeros(3, np.float32), 0.5, np.random.default_rng(0)).any()
