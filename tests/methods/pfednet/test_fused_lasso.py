"""The exact fused lasso: the spec's vectors, its optimality conditions, and what follows from them."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import lsq_linear

from sparsona.methods.pfednet.fused_lasso import fused_lasso, runs

G = np.array([1, 1.2, -0.9, -1.1, 0.1])
VECTORS = arrays(np.float64, st.integers(1, 40), elements=st.floats(-10, 10, width=32))
GAMMAS = st.floats(0.0009765625, 8, width=32)


def difference(size: int, pinned: bool) -> npt.NDArray[np.float64]:
    """Lambda; without its last row the end is free."""
    matrix = np.eye(size) - np.eye(size, k=1)
    return matrix if pinned else matrix[:-1]


@pytest.mark.parametrize(
    ("gamma", "pinned", "expected"),
    [
        (0.1, True, (1.05, 1.05, -0.9, -0.9, 0)),
        (0.1, False, (1.05, 1.05, -0.9, -0.9, 0)),
        (0.5, True, (0.85, 0.85, -0.5, -0.5, 0)),
        (0.5, False, (0.85, 0.85, -0.5, -0.5, -0.4)),
        (1.0, True, (0.6, 0.6, 0, 0, 0)),
        (1.0, False, (0.6, 0.6, -0.3, -0.3, -0.3)),
    ],
)
def test_the_vectors_of_the_spec(gamma: float, pinned: bool, expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(fused_lasso(G, gamma, pinned), expected, atol=1e-12)


def test_the_demo_of_the_paper() -> None:
    matrix = difference(4, pinned=True)
    points = np.array([[0, 0, 0, 0], [-1, -1, 1, 1], [1, -1, 1, 1], [1, -1, 1, -1]])
    steps = np.diff(points, axis=0) @ matrix.T
    assert steps.tolist() == [[0, -2, 0, 1], [2, 0, 0, 0], [0, 0, 2, -2]]


def test_without_gamma_nothing_changes_to_the_bit() -> None:
    g = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    g[3] = -0.0
    for pinned in (True, False):
        assert fused_lasso(g, 0.0, pinned).tobytes() == g.tobytes()


@given(g=VECTORS, gamma=GAMMAS, pinned=st.booleans())
@settings(deadline=None, max_examples=200)
def test_it_is_the_minimum(g: npt.NDArray[np.float64], gamma: float, pinned: bool) -> None:
    """There is z within +-gamma with u = g - Lambda^T z, at its bound wherever Lambda u is not zero."""
    u = fused_lasso(g, gamma, pinned)
    matrix = difference(len(g), pinned)
    z = np.cumsum(g - u)[: len(matrix)]  # Lambda^T z = g - u, solved from the first row on
    np.testing.assert_allclose(matrix.T @ z, g - u, atol=1e-8)
    assert (np.abs(z) <= gamma + 1e-8).all()
    jumps = matrix @ u
    apart = jumps != 0
    np.testing.assert_allclose(z[apart], gamma * np.sign(jumps[apart]), atol=1e-8)


@given(g=VECTORS, gamma=GAMMAS)
@settings(deadline=None)
def test_a_free_end_keeps_the_sum(g: npt.NDArray[np.float64], gamma: float) -> None:
    assert fused_lasso(g, gamma, pinned=False).sum() == pytest.approx(g.sum(), abs=1e-9)


@given(g=VECTORS, gamma=GAMMAS)
@settings(deadline=None)
def test_it_is_zero_iff_all_prefix_sums_are_within_gamma(g: npt.NDArray[np.float64], gamma: float) -> None:
    most = np.abs(np.cumsum(g)).max()
    if abs(most - gamma) > 1e-9:
        assert (not fused_lasso(g, gamma).any()) == (most < gamma)


@given(g=VECTORS, pinned=st.booleans())
@settings(deadline=None)
def test_more_gamma_never_makes_more_runs(g: npt.NDArray[np.float64], pinned: bool) -> None:
    counts = [runs(fused_lasso(g, gamma, pinned).round(9)) for gamma in (0.01, 0.1, 0.5, 1, 2, 5, 20)]
    assert counts == sorted(counts, reverse=True)


def test_against_bounded_least_squares() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        g, gamma = rng.normal(size=int(rng.integers(2, 60))) * rng.choice([0.1, 1, 10]), float(rng.exponential())
        for pinned in (True, False):
            matrix = difference(len(g), pinned)
            dual = lsq_linear(matrix.T, g, (-gamma, gamma), method="bvls", tol=1e-14, max_iter=10_000).x
            np.testing.assert_allclose(fused_lasso(g, gamma, pinned), g - matrix.T @ dual, atol=1e-9)


def test_tensors_are_not_fused_with_each_other() -> None:
    g = np.concatenate([G, G]).astype(np.float32)
    apart = fused_lasso(g, 0.5, pinned=False, sizes=(5, 0, 5))
    np.testing.assert_array_equal(apart[:5], apart[5:])
    assert runs(apart, (5, 5)) == 6
    assert runs(fused_lasso(g, 100.0, pinned=False)) == 1


def test_float32_in_float32_out_and_fused_entries_are_equal() -> None:
    g = np.random.default_rng(2).normal(size=5000).astype(np.float32)
    u = fused_lasso(g, 3.0)
    assert u.dtype == np.float32
    np.testing.assert_allclose(u, fused_lasso(g.astype(np.float64), 3.0), atol=1e-6)
    assert runs(u) < 400


def test_it_takes_linear_time() -> None:
    rng = np.random.default_rng(3)
    fused_lasso(rng.normal(size=10), 1.0)
    took = []
    for size in (20_000, 400_000):
        g = np.sort(rng.normal(size=size))  # monotone: knots pile up
        began = time.process_time()
        fused_lasso(g, 0.5)
        took.append(time.process_time() - began)
    assert took[1] < 200 * max(took[0], 1e-4), "20 times the length must not take 200 times as long"
