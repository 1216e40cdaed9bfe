"""Similarity of many clients: against the plain formula, in bounded memory, and what becomes of it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from torch import nn

from sparsona.ops.pairwise import Similarity, add_mixtures, cosines, row_softmax
from sparsona.ops.similarity import cosine
from sparsona.ops.stages import stage_spans, weight_tensors
from sparsona.vector import Layout


def vectors(count: int, size: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=size).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("spans", [[slice(0, 700)], [slice(3, 90), slice(200, 201)]])
def test_every_pair_is_the_cosine_of_the_pair(spans: list[slice]) -> None:
    found = vectors(7, 700)
    matrix = cosines(found, spans)
    parts = [np.concatenate([v[s] for s in spans]) for v in found]
    for i, one in enumerate(parts):
        for j, other in enumerate(parts):
            assert matrix[i, j] == pytest.approx(cosine(one, other), abs=1e-12)


def test_symmetric_with_ones_on_the_diagonal_and_blocks_do_not_show() -> None:
    found = vectors(5, 300_000)
    matrix = cosines(found, [slice(0, 300_000)])
    assert (matrix == matrix.T).all()
    assert (np.diag(matrix) == 1).all()
    halves = cosines(found, [slice(0, 150_001), slice(150_001, 300_000)])
    assert np.allclose(matrix, halves, atol=1e-12)


def test_a_vector_of_zeros_is_like_nobody_and_its_row_is_still_shares() -> None:
    found = [np.zeros(9, np.float32), *vectors(3, 9)]
    matrix = cosines(found, [slice(0, 9)])
    assert (matrix[0] == 0).all()
    shares = row_softmax(matrix)
    assert np.allclose(shares.sum(1), 1)
    assert np.allclose(shares[0], 0.25)


def test_no_copy_of_clients_by_weights_is_made() -> None:
    found = vectors(20, 400_000)
    whole = 20 * 400_000 * 4
    tracemalloc.start()
    cosines(found, [slice(0, 400_000)])
    add_mixtures(found, np.eye(20), found, [slice(0, 100)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < whole / 3


def test_mixtures_are_the_matrix_product() -> None:
    found, onto = vectors(4, 1000), vectors(3, 1000, seed=1)
    shares = np.random.default_rng(2).random((3, 4))
    wanted = [o.astype(np.float64) + shares[i] @ np.stack(found) for i, o in enumerate(onto)]
    add_mixtures(onto, shares, found, [slice(0, 400), slice(400, 1000)])
    for got, want in zip(onto, wanted, strict=True):
        assert np.allclose(got, want, atol=1e-6)


def test_pairs_are_measured_when_they_meet() -> None:
    half = np.array([[1, 0.5], [0.5, 1]])
    first = Similarity((), {}).updated(["a", "b"], {"base": half})
    both = first.updated(["b", "c"], {"base": 0.2 * half + 0.8 * np.eye(2)})
    assert both.clients == ("a", "b", "c")
    assert both.of("base", ["a", "c"]).tolist() == [[1, 0], [0, 1]]
    assert both.of("base", ["c", "b"])[0, 1] == pytest.approx(0.1)
    assert both.of("base", ["b", "nobody"]).tolist() == [[1, 0], [0, 0]]
    smooth = first.updated(["a", "b"], {"base": np.ones((2, 2))}, keep=0.6)
    assert smooth.stages["base"][0, 1] == pytest.approx(0.6 * 0.5 + 0.4)
    fresh = first.updated(["b", "c"], {"base": half}, keep=0.6)
    assert fresh.of("base", ["b", "c"])[0, 1] == 0.5, "nothing old to keep"


def test_stages_of_a_net() -> None:
    net = Layout.of(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(4, 3), nn.Linear(3, 2)))
    spans = stage_spans(net)
    assert [t.name for t in weight_tensors(net, "base")] == ["0.weight", "1.weight"]
    assert [t.name for t in weight_tensors(net)] == ["0.weight", "1.weight", "2.weight"]
    covered = sorted((s.start, s.stop) for group in spans.values() for s in group)
    assert covered == [(t.start, t.stop) for t in net.tensors]
    assert list(stage_spans(Layout.of(nn.Linear(2, 2)))) == ["head"]
