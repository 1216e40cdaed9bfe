"""ADMM for the network lasso: closed forms, a generic solver, and the norms' right proximal maps."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.sparse.linalg import splu

from sparsona.methods.pfednet.graph import Graph, knn_graph
from sparsona.methods.pfednet.network_lasso import Norm, Rows, _code, _prox_row, _scale, network_prox

NORMS: tuple[Norm, ...] = (1, 2, "inf")
ORDER = {1: 1, 2: 2, "inf": np.inf}
DUAL = {1: np.inf, 2: 2, "inf": 1}
VECTORS = arrays(np.float64, st.integers(1, 12), elements=st.floats(-5, 5, width=32))


def norm_prox(a: Rows, tau: float, p: Norm) -> Rows:
    """argmin over w of tau * |w|_p + 1/2 |w - a|^2, by the kernel of the network lasso."""
    out = np.empty_like(a)
    _prox_row(a, _scale(a, tau, _code(p)), _code(p), out)
    return out


def objective(z: Any, b: Any, graph: Graph, strength: float, p: Norm) -> float:
    apart = z[graph.edges[:, 0]] - z[graph.edges[:, 1]]
    norms = np.linalg.norm(apart, ORDER[p], axis=1)
    return float(0.5 * np.square(z - b).sum() + strength * (graph.weights * norms).sum())


def exact(b: Any, graph: Graph, strength: float, p: Norm, **more: Any) -> Any:
    return network_prox(b, graph, strength, p, iterations=50_000, tolerance=1e-11, **more)[0]


def graph_of(nodes: int, k: int = 2, weighted: bool = False, seed: int = 0) -> Graph:
    return knn_graph(np.random.default_rng(seed).normal(size=(nodes, 2)), k, weighted=weighted)


def test_the_vectors_of_the_spec() -> None:
    a = np.array([3, -1, 0.5])
    found = [norm_prox(a, 1.0, p) for p in NORMS]
    wanted = np.array([[2, 0, 0], [2.062957, -0.687652, 0.343826], [2, -1, 0.5]])
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    values = [np.linalg.norm(w, ORDER[p]) + 0.5 * np.square(w - a).sum() for w, p in zip(found, NORMS, strict=True)]
    np.testing.assert_allclose(values, [3.125, 2.7016, 2.5], atol=1e-4)


@given(a=VECTORS, tau=st.floats(0.0009765625, 6, width=32), p=st.sampled_from(NORMS))
@settings(deadline=None)
def test_moreau(a: Any, tau: float, p: Norm) -> None:
    """a - prox(a) is the projection onto the dual ball: within it, and at its rim in the direction of the prox."""
    w = norm_prox(a, tau, p)
    rest = a - w
    assert np.linalg.norm(rest, DUAL[p]) <= tau + 1e-9
    assert float(rest @ w) == pytest.approx(tau * float(np.linalg.norm(w, ORDER[p])), abs=1e-7)


@pytest.mark.parametrize("p", NORMS)
def test_the_prox_of_zero_is_zero(p: Norm) -> None:
    assert not norm_prox(np.zeros(4), 1.0, p).any()
    assert not norm_prox(np.full(4, 1e-3), 1.0, p).any()


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("rho", [0.02, 0.5, 10.0])
@pytest.mark.parametrize("strength", [0.1, 0.6, 50.0])
def test_two_clients(p: Norm, rho: float, strength: float) -> None:
    b = np.random.default_rng(1).normal(size=(2, 6))
    z = exact(b, Graph(2, np.array([[0, 1]]), np.ones(1, np.float32)), strength, p, rho=rho)
    np.testing.assert_allclose(z[0] - z[1], norm_prox(b[0] - b[1], 2 * strength, p), atol=1e-8)
    np.testing.assert_allclose(z.sum(0), b.sum(0), atol=1e-8)
    if p == 2:
        delta = b[0] - b[1]
        shrunk = max(0.0, 1 - 2 * strength / float(np.linalg.norm(delta))) * delta
        np.testing.assert_allclose(z[0] - z[1], shrunk, atol=1e-8)


@pytest.mark.parametrize("p", NORMS)
def test_without_strength_nothing_moves(p: Norm) -> None:
    b = np.random.default_rng(2).normal(size=(5, 3))
    assert network_prox(b, graph_of(5), 0.0, p)[0] is b


@pytest.mark.parametrize("p", NORMS)
def test_much_strength_is_consensus_on_the_mean_of_each_piece(p: Norm) -> None:
    b = np.random.default_rng(3).normal(size=(6, 4))
    pieces = Graph(6, np.array([[0, 1], [1, 2], [3, 4]]), np.ones(3, np.float32))
    z = exact(b, pieces, 1e3, p)
    for members in ([0, 1, 2], [3, 4], [5]):
        np.testing.assert_allclose(z[members], np.tile(b[members].mean(0), (len(members), 1)), atol=1e-6)


@pytest.mark.parametrize("p", NORMS)
def test_clients_of_a_complete_graph_are_interchangeable(p: Norm) -> None:
    b = np.random.default_rng(4).normal(size=(5, 3))
    graph = graph_of(5, k=9)
    assert len(graph.edges) == 10
    order = np.array([3, 1, 4, 0, 2])
    np.testing.assert_allclose(exact(b[order], graph, 0.3, p), exact(b, graph, 0.3, p)[order], atol=1e-7)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("weighted", [False, True])
def test_against_a_generic_solver(p: Norm, weighted: bool) -> None:
    rng = np.random.default_rng(5)
    for trial in range(3):
        nodes, size = int(rng.integers(3, 6)), int(rng.integers(1, 4))
        graph, strength = graph_of(nodes, weighted=weighted, seed=trial), float(rng.uniform(0.05, 0.5))
        b = rng.normal(size=(nodes, size))
        reference = generic(b, graph, strength, p)
        z = exact(b, graph, strength, p)
        best, ours = objective(reference, b, graph, strength, p), objective(z, b, graph, strength, p)
        assert ours <= best + 1e-6, "ADMM is not worse than the generic solver"
        np.testing.assert_allclose(z, reference, atol=2e-3)


def generic(b: Any, graph: Graph, strength: float, p: Norm) -> Any:
    """The problem in epigraph form for SLSQP: a bound t for every edge (p = 1: for every entry of an edge)."""
    size = b.shape[1]
    i, j = graph.edges.T
    count = len(graph.edges) * (size if p == 1 else 1)
    price = strength * np.repeat(graph.weights.astype(np.float64), size if p == 1 else 1)

    def apart(v: Any) -> Any:
        z = v[: b.size].reshape(b.shape)
        return z[i] - z[j]

    def room(v: Any) -> Any:
        t = v[b.size :]
        if p == 2:
            return t - np.sqrt(np.square(apart(v)).sum(1) + 1e-16)
        bound = t.reshape(len(i), size) if p == 1 else t[:, None]
        return np.concatenate([(bound - apart(v)).ravel(), (bound + apart(v)).ravel()])

    start = np.concatenate([b.ravel(), np.full(count, 10.0)])
    found = minimize(
        lambda v: 0.5 * np.square(v[: b.size] - b.ravel()).sum() + float(price @ v[b.size :]),
        start,
        method="SLSQP",
        constraints={"type": "ineq", "fun": room},
        options={"maxiter": 2000, "ftol": 1e-13},
    )
    return found.x[: b.size].reshape(b.shape)


@pytest.mark.parametrize("p", NORMS)
def test_a_warm_start_gets_further(p: Norm) -> None:
    rng = np.random.default_rng(6)
    graph, b = graph_of(12, 3), rng.normal(size=(12, 40))
    truth = exact(b, graph, 0.4, p)
    near = b + 0.01 * rng.normal(size=b.shape)
    _, stood = network_prox(near, graph, 0.4, p, iterations=200, tolerance=0)
    cold, _ = network_prox(b, graph, 0.4, p, iterations=8, tolerance=0)
    warm, _ = network_prox(b, graph, 0.4, p, iterations=8, tolerance=0, start=stood)
    assert np.linalg.norm(warm - truth) < 0.5 * np.linalg.norm(cold - truth)


def test_it_stops_by_itself_and_float32_is_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparsona.methods.pfednet import network_lasso

    sweeps = Mock(side_effect=network_lasso._scales)
    monkeypatch.setattr(network_lasso, "_scales", sweeps)
    rng = np.random.default_rng(7)
    graph, b = graph_of(20, 3), rng.normal(size=(20, 2500)).astype(np.float32)
    z, _ = network_prox(b, graph, 5.0, iterations=500, tolerance=1e-4)
    assert 3 < sweeps.call_count < 100
    assert z.dtype == np.float32
    np.testing.assert_allclose(z, exact(b.astype(np.float64), graph, 5.0, 2), atol=5e-3)


def test_tiles_are_one_problem() -> None:
    """2500 coordinates are three tiles, but the norm of an edge is over all of them."""
    b = np.zeros((2, 2500))
    b[0, [0, 1500, 2499]] = (2, 2, 1)
    z = exact(b, Graph(2, np.array([[0, 1]]), np.ones(1, np.float32)), 0.75, 2)
    np.testing.assert_allclose(z[0] - z[1], b[0] / 2, atol=1e-8)  # |b| = 3, shrunk by 2 * 0.75


def test_a_graph_is_factorised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparsona.methods.pfednet import network_lasso

    network_lasso._solver.cache_clear()
    made = Mock(side_effect=splu)
    monkeypatch.setattr(network_lasso, "splu", made)
    rng = np.random.default_rng(8)
    graph, b = graph_of(12, 3), rng.normal(size=(12, 40)).astype(np.float32)
    first, stood = network_prox(b, graph, 0.4)
    network_prox(b + 1, graph_of(12, 3), 0.2, 1, start=stood)
    again, _ = network_prox(b, graph, 0.4)
    assert made.call_count == 1, "neither another strength, nor another norm, nor an equal graph asks for new factors"
    assert again.tobytes() == first.tobytes()
    network_prox(b, graph, 0.4, rho=0.5)
    network_prox(b, graph_of(12, 2), 0.4)
    assert made.call_count == 3, "another rho and another graph do"
    network_lasso._solver.cache_clear()
    assert network_prox(b, graph, 0.4)[0].tobytes() == first.tobytes()


def test_few_factors_are_kept() -> None:
    from sparsona.methods.pfednet import network_lasso

    for seed in range(3 * network_lasso.KEPT):
        network_prox(np.eye(6), graph_of(6, seed=seed), 0.1)
    assert network_lasso._solver.cache_info().currsize == network_lasso.KEPT
