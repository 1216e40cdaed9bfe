"""The similarity network: nearest neighbours either way, its matrices, and how it grows."""

from __future__ import annotations

import numpy as np
import pytest

from sparsona.methods.pfednet import graph
from sparsona.methods.pfednet.graph import Network, knn_graph


def test_an_edge_needs_one_side_only() -> None:
    graph = knn_graph(np.array([[0.0], [1.0], [1.5], [9.0]]), 1)
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3]], "3 lists 2, though 2 does not list 3"
    assert graph.neighbours(2).tolist() == [1, 3]


def test_q_and_its_laplacian() -> None:
    rng = np.random.default_rng(0)
    graph = knn_graph(rng.normal(size=(30, 4)), 4)
    q = graph.incidence().toarray()
    assert (q.sum(0) == 0).all()
    assert (np.abs(q).sum(0) == 2).all()
    assert (q[graph.edges[:, 0], np.arange(len(graph.edges))] == 1).all()
    adjacency = np.zeros((30, 30))
    for i, j in graph.edges:
        adjacency[i, j] = adjacency[j, i] = 1
    np.testing.assert_array_equal(q @ q.T, np.diag(adjacency.sum(0)) - adjacency)
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    assert len(np.unique(graph.edges, axis=0)) == len(graph.edges)


def test_as_many_neighbours_as_there_are_make_a_complete_graph() -> None:
    assert len(knn_graph(np.zeros((6, 2)), 100).edges) == 15
    assert len(knn_graph(np.zeros((1, 2)), 3).edges) == 0
    assert len(knn_graph(np.zeros((0, 2)), 3).edges) == 0


def test_the_order_of_clients_does_not_matter() -> None:
    points = np.random.default_rng(1).normal(size=(20, 3))
    order = np.random.default_rng(2).permutation(20)
    plain = {tuple(sorted(edge)) for edge in knn_graph(points, 3).edges.tolist()}
    mixed = {tuple(sorted((int(order[i]), int(order[j])))) for i, j in knn_graph(points[order], 3).edges}
    assert plain == mixed


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_many_clients_have_the_same_neighbours_block_by_block(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    for points in (rng.integers(0, 3, (120, 2)).astype(np.float64), rng.normal(size=(60, 3)), np.zeros((9, 1))):
        monkeypatch.setattr(graph, "BLOCK", 2**24)
        whole = graph._nearest(points, 4, "manhattan")
        monkeypatch.setattr(graph, "BLOCK", size * len(points))
        np.testing.assert_array_equal(graph._nearest(points, 4, "manhattan"), whole)


def test_weights_fall_with_distance_and_have_mean_one() -> None:
    graph = knn_graph(np.array([[0.0], [1.0], [3.0], [9.0]]), 1, weighted=True)
    assert graph.weights.mean() == pytest.approx(1)
    assert (np.diff(graph.weights) < 0).all()
    assert knn_graph(np.zeros((4, 1)), 1, weighted=True).weights.tolist() == [1, 1, 1]


def test_covariances_are_compared_entry_by_entry() -> None:
    points = np.array([[0.0, 0.0], [1.9, 0.0], [1.0, 1.0]])
    assert [0, 2] in knn_graph(points, 1, "euclidean").edges.tolist()
    assert [0, 1] in knn_graph(points, 1, "manhattan").edges.tolist()


def test_a_network_grows_and_newcomers_start_where_their_neighbours_are() -> None:
    start = {name: np.full(1, place) for name, place in (("a", 0.0), ("b", 1.0), ("c", 9.0), ("d", 10.0))}
    network = Network.empty(1).joined(start, 1, "euclidean", False)
    z = network.rows_of(np.zeros((0, 2), np.float32), np.array([5, 5], np.float32))
    assert z.tolist() == [[5, 5]] * 4
    z = np.array([[1, 1], [2, 2], [8, 8], [9, 9]], np.float32)
    wider = network.joined({"e": np.full(1, 10.5)}, 1, "euclidean", False)
    assert wider.clients == ("a", "b", "c", "d", "e")
    np.testing.assert_array_equal(wider.rows_of(z, z[0]), [*z, z[3]])
    assert wider.row("e") == 4
    assert wider.row("f") is None
    assert wider.joined({}, 1, "euclidean", False) is wider


def test_who_has_no_known_neighbour_starts_at_the_mean() -> None:
    first = {"a": np.zeros(1, np.float32), "b": np.ones(1, np.float32)}
    network = Network.empty(1).joined(first, 1, "euclidean", False)
    wider = network.joined({"c": np.full(1, 50.0), "d": np.full(1, 50.5)}, 1, "euclidean", False)
    z = wider.rows_of(np.array([[1], [3]], np.float32), np.zeros(1, np.float32))
    assert z[2:].ravel().tolist() == [2, 2]
