"""Few levels in long runs: k-means in one dimension, and what it costs on the wire."""

from __future__ import annotations

import itertools
import time

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import lsq_linear

from sparsona.errors import Diverged, WireError
from sparsona.message import Levels, Message
from sparsona.methods.pfednet.cluster import clustered, fused_lasso, to_levels
from sparsona.wire import Limit, decode, encode

VECTORS = arrays(np.float32, st.integers(1, 30), elements=st.floats(-4, 4, width=16))


def runs(u: npt.NDArray[np.floating], sizes: tuple[int, ...] = ()) -> int:
    """The number of runs of equal entries; a tensor's end ends one."""
    new = np.concatenate([[True], u[1:] != u[:-1]])
    new[np.cumsum(sizes, dtype=int)[:-1]] = True
    return int(np.count_nonzero(new))


def frame(u: Levels) -> int:
    return len(encode(Message(u=u)).data)


@given(values=VECTORS, levels=st.integers(1, 8))
@settings(deadline=None)
def test_levels_are_few_and_each_value_goes_to_the_nearest(values: npt.NDArray[np.float32], levels: int) -> None:
    out = to_levels(values, levels)
    found = np.unique(out)
    assert len(found) <= levels
    assert (np.abs(values - out) <= np.abs(values[:, None] - found).min(1) + 1e-5).all()
    for level in found:
        assert level == pytest.approx(float(values[out == level].mean(dtype=np.float64)), abs=1e-5)


def test_two_clear_clusters_are_found_exactly() -> None:
    values = np.array([0, 10, 1, 11, 0.5, 10.5], np.float32)
    assert to_levels(values, 2).tolist() == [0.5, 10.5, 0.5, 10.5, 0.5, 10.5]
    assert to_levels(values, 6) is values


def test_lloyd_is_near_the_best_cut() -> None:
    rng, best, ours = np.random.default_rng(0), 0.0, 0.0
    for _ in range(50):
        values = np.sort(rng.normal(size=14)).astype(np.float32)
        cuts = [(0, *c, 14) for c in itertools.combinations(range(1, 14), 2)]
        best += min(sum(float(values[a:b].var()) * (b - a) for a, b in itertools.pairwise(cut)) for cut in cuts)
        ours += float(np.square(values - to_levels(values, 3)).sum())
    assert best <= ours <= 1.3 * best


@pytest.mark.parametrize("levels", [8, 16])
def test_few_large_numbers_among_many_small_ones_get_their_levels(levels: int) -> None:
    """The error is near the least one, by dynamic programming. From the quantiles it is twice and ten times that."""
    rng = np.random.default_rng(0)
    values = np.sort(np.concatenate([rng.normal(size=100), rng.normal(size=400) / 100])).astype(np.float32)
    sums, squares = (np.concatenate([[0.0], np.cumsum(values.astype(np.float64) ** power)]) for power in (1, 2))

    def costs(end: int) -> npt.NDArray[np.float64]:
        """The error of one level for the numbers from each start to `end`."""
        start = np.arange(end)
        found: npt.NDArray[np.float64] = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / (end - start)
        return found

    best = np.array([0.0, *(costs(end)[0] for end in range(1, 501))])
    for _ in range(levels - 1):
        best = np.array([0.0, *((best[:end] + costs(end)).min() for end in range(1, 501))])
    assert best[-1] - 1e-6 <= float(np.square(values - to_levels(values, levels)).sum()) <= 1.3 * best[-1]


def test_quantising_never_breaks_a_run() -> None:
    g = np.random.default_rng(1).normal(size=2000).astype(np.float32)
    fused = clustered(g, (1500, 500), 2.0)
    few = clustered(g, (1500, 500), 2.0, levels=4)
    assert runs(few.values, few.sizes) <= runs(fused.values, fused.sizes) < 400
    assert all(len(np.unique(part)) <= 4 for part in np.split(few.values, [1500]))


def test_the_tensors_are_all_there_is() -> None:
    with pytest.raises(WireError, match="the tensors hold 6 entries but 10 are given"):
        clustered(np.arange(10, dtype=np.float32), (6,), 100.0, levels=1)


def test_what_is_not_finite_is_not_sent() -> None:
    with pytest.raises(Diverged, match="lower the learning rate"):
        clustered(np.array([1, np.nan], np.float32), (2,), 0.1)


@given(g=VECTORS, gamma=st.floats(0, 2), levels=st.integers(0, 4))
@settings(deadline=None)
def test_the_wire_gives_back_what_it_took(g: npt.NDArray[np.float32], gamma: float, levels: int) -> None:
    u = clustered(g, (len(g),), gamma, levels=levels)
    back = decode(encode(Message(u=u)).data, Limit(1000)).levels("u")
    assert back.sizes == u.sizes
    assert back.values.tobytes() == u.values.tobytes()


def test_a_constant_vector_costs_a_level_whatever_its_length() -> None:
    sizes = [frame(Levels((n,), np.full(n, 0.5, np.float32))) for n in (10, 1000, 100_000)]
    assert max(sizes) - min(sizes) <= 4, "only the length's own digits"
    assert frame(Levels((1000,), np.zeros(1000, np.float32))) < 45


def test_more_runs_cost_more() -> None:
    costs = []
    for count in (1, 2, 8, 32, 128, 512):
        levels = np.where(np.arange(count) % 2, -1.0, 1.0).astype(np.float32)
        costs.append(frame(Levels((4096,), np.repeat(levels, 4096 // count))))
    assert costs == sorted(costs)


def test_more_gamma_costs_less() -> None:
    g = np.random.default_rng(2).normal(size=20_000).astype(np.float32)
    costs = [frame(clustered(g, (20_000,), gamma)) for gamma in (0.0, 0.5, 2.0, 8.0, 32.0)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] / 50


G = np.array([1, 1.2, -0.9, -1.1, 0.1])
SIGNALS = arrays(np.float64, st.integers(1, 40), elements=st.floats(-10, 10, width=32))
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


@given(g=SIGNALS, gamma=GAMMAS, pinned=st.booleans())
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


@given(g=SIGNALS, gamma=GAMMAS)
@settings(deadline=None)
def test_a_free_end_keeps_the_sum(g: npt.NDArray[np.float64], gamma: float) -> None:
    assert fused_lasso(g, gamma, pinned=False).sum() == pytest.approx(g.sum(), abs=1e-9)


@given(g=SIGNALS, gamma=GAMMAS)
@settings(deadline=None)
def test_it_is_zero_iff_all_prefix_sums_are_within_gamma(g: npt.NDArray[np.float64], gamma: float) -> None:
    most = np.abs(np.cumsum(g)).max()
    if abs(most - gamma) > 1e-9:
        assert (not fused_lasso(g, gamma).any()) == (most < gamma)


@given(g=SIGNALS, pinned=st.booleans())
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
