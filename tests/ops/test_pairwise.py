"""Similarity of many clients: against the plain formula, in bounded memory, and what becomes of it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from torch import nn

from sparsona.layout import Layout
from sparsona.ops import pairwise
from sparsona.ops.pairwise import LazyVectors, Similarity, add_mixtures, cosine, cosines, mixed_cosines, row_softmax
from sparsona.ops.parts import stage_spans, weight_tensors


def vectors(count: int, size: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=size).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("spans", [[slice(0, 700)], [slice(3, 90), slice(200, 201)]])
def test_every_pair_is_the_cosine_of_the_pair(spans: list[slice]) -> None:
    found = vectors(7, 700)
    (matrix,) = cosines(found, [spans])
    parts = [np.concatenate([v[s] for s in spans]) for v in found]
    for i, one in enumerate(parts):
        for j, other in enumerate(parts):
            assert matrix[i, j] == pytest.approx(cosine(one, other), abs=1e-12)


def test_symmetric_with_ones_on_the_diagonal_and_blocks_do_not_show() -> None:
    found = vectors(5, 300_000)
    (matrix,) = cosines(found, [[slice(0, 300_000)]])
    assert (matrix == matrix.T).all()
    assert (np.diag(matrix) == 1).all()
    (halves,) = cosines(found, [[slice(0, 150_001), slice(150_001, 300_000)]])
    assert np.allclose(matrix, halves, atol=1e-12)


def test_a_vector_of_zeros_is_like_nobody_and_its_row_is_still_shares() -> None:
    found = [np.zeros(9, np.float32), *vectors(3, 9)]
    (matrix,) = cosines(found, [[slice(0, 9)]])
    assert (matrix[0] == 0).all()
    shares = row_softmax(matrix)
    assert np.allclose(shares.sum(1), 1)
    assert np.allclose(shares[0], 0.25)


@pytest.mark.parametrize("held", [1, 2 * 3 * 700, 2 * 4 * 700, 7 * 700 - 1])
def test_blocks_of_clients_do_not_show(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same similarity to 1e-12, and the same mixtures to a rounding a block."""
    found, groups = vectors(7, 700), [[slice(0, 300), slice(400, 500)], [slice(300, 700)]]
    whole = cosines(found, groups)
    mixtures = [(np.random.default_rng(3).random((7, 7)), [slice(0, 650)])]
    plain = vectors(7, 700, seed=1)
    add_mixtures(plain, mixtures, found)
    monkeypatch.setattr(pairwise, "HELD", held)
    for one, other in zip(whole, cosines(LazyVectors(7, found.__getitem__), groups), strict=True):
        assert np.abs(one - other).max() < 1e-12
        assert (other == other.T).all()
    blocked = vectors(7, 700, seed=1)
    add_mixtures(blocked, mixtures, LazyVectors(7, found.__getitem__))
    for before, after in zip(plain, blocked, strict=True):
        assert np.allclose(before, after, rtol=1e-6, atol=1e-6)


def test_all_groups_are_made_in_one_pass_over_pairs_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = vectors(6, 50), [0] * 6

    def make(i: int) -> np.ndarray:
        asked[i] += 1
        return found[i]

    monkeypatch.setattr(pairwise, "HELD", 2 * 2 * 50)
    cosines(LazyVectors(6, make), [[slice(0, 20)], [slice(20, 50)]])
    assert asked == [1 + 1, 1, 2, 2, 3, 3], "one more of the first, whose length is asked for"


def test_no_copy_of_clients_by_weights_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of vectors that are made when they are asked for, those of two blocks are there at a time."""
    clients, size, held = 60, 50_000, 1 << 20
    monkeypatch.setattr(pairwise, "HELD", held)
    monkeypatch.setattr(pairwise, "BLOCK", 1 << 14)
    made = LazyVectors(clients, lambda i: np.full(size, i + 1, np.float32))
    onto = [np.zeros(size, np.float32) for _ in range(3)]
    tracemalloc.start()
    (matrix,) = cosines(made, [[slice(0, size)]])
    add_mixtures(onto, [(np.ones((3, clients)), [slice(0, size)])], made)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * 4 * held < 4 * clients * size / 2
    assert np.allclose(matrix, 1)
    assert (onto[2] == clients * (clients + 1) / 2).all()


def test_stages_mix_their_tensors_by_weight() -> None:
    found = vectors(4, 30)
    one, other, third = cosines(found, [[slice(0, 10)], [slice(10, 20)], [slice(20, 30)]])
    mixed = mixed_cosines(found, {"a": [(0.7, slice(0, 10)), (0.3, slice(10, 20))], "b": [(1.0, slice(20, 30))]})
    assert np.allclose(mixed["a"], 0.7 * one + 0.3 * other, atol=1e-15)
    assert np.allclose(mixed["b"], third, atol=1e-15)


def test_mixtures_are_the_matrix_product() -> None:
    found, onto = vectors(4, 1000), vectors(3, 1000, seed=1)
    shares = np.random.default_rng(2).random((3, 4))
    wanted = [o.astype(np.float64) + shares[i] @ np.stack(found) for i, o in enumerate(onto)]
    add_mixtures(onto, [(shares, [slice(0, 400), slice(400, 1000)])], found)
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
