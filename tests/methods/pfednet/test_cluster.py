"""Few levels in long runs: k-means in one dimension, and what it costs on the wire."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparsona.errors import Diverged, WireError
from sparsona.message import Levels, Message
from sparsona.methods.pfednet.cluster import clustered, to_levels
from sparsona.methods.pfednet.fused_lasso import runs
from sparsona.wire import Limit, decode, encode

VECTORS = arrays(np.float32, st.integers(1, 30), elements=st.floats(-4, 4, width=16))


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
