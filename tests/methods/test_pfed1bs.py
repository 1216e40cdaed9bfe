"""pFed1BS: the sketch as a matrix, the pull as a derivative, the vote, and the bits that travel."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard as matrix

import sparsona
from sparsona.message import Message, Positions, Vector
from sparsona.method import Arrival, ServerContext
from sparsona.methods.pfed1bs import PFed1BS, ServerState, Sketch, hadamard
from sparsona.ops.masks import unpack
from sparsona.testing import check_method
from sparsona.testing.tiny import tiny_setup


def test_the_contract() -> None:
    check_method(PFed1BS())


def test_the_sketch_is_the_papers_matrix() -> None:
    rng = np.random.default_rng(0)
    flips, rows = rng.choice(np.array([-1, 1], np.float32), 8), np.array([1, 4, 6])
    sketch, w, u = Sketch(flips, rows, 5), rng.normal(size=5).astype(np.float32), rng.normal(size=3).astype(np.float32)
    phi = np.sqrt(8 / 3) * (matrix(8) / np.sqrt(8) * flips)[rows][:, :5]  # sqrt(n'/m) S H D on padded weights
    np.testing.assert_allclose(sketch.of(w), phi @ w, rtol=1e-5)
    np.testing.assert_allclose(sketch.back(u), phi.T @ u, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(hadamard(hadamard(flips)), 8 * flips)


def test_the_pull_is_the_derivative_of_the_papers_terms() -> None:
    method, rng = PFed1BS(ratio=0.5, lam=0.3, mu=0.2, gamma=2.0), np.random.default_rng(1)
    task = tiny_setup(method).task
    sketch = method.sketch(task)
    w, v = rng.normal(0, 0.1, task.layout.size).astype(np.float32), rng.choice([-1, 1], len(sketch.rows))

    def terms(at: Vector) -> float:
        z = sketch.of(at).astype(np.float64)
        h = np.log(np.cosh(2.0 * z)).sum() / 2.0
        return float(0.3 * (h - v @ z) + 0.1 * (at.astype(np.float64) ** 2).sum())

    found, away = method.pull(w, v.astype(np.float32), sketch), rng.normal(size=len(w)).astype(np.float32)
    slope = (terms(w + np.float32(1e-3) * away) - terms(w - np.float32(1e-3) * away)) / 2e-3
    assert slope == pytest.approx(float(found @ away), rel=1e-2)


def test_the_majority_of_the_examples_decides_and_a_tie_is_positive() -> None:
    method = PFed1BS(ratio=0.03)
    task = tiny_setup(method).task
    count = len(method.sketch(task).rows)

    def reply(client: str, examples: int, places: list[int]) -> Arrival:
        signs = Positions.of(np.isin(np.arange(count), places))
        return Arrival(client, Message(signs=signs, examples=examples), 0)

    replies = [reply("a", 3, [0, 1]), reply("b", 1, [0, 2]), reply("c", 2, [2])]
    found = method.aggregate(ServerState(), replies, ServerContext(task, 0)).consensus
    assert found is not None
    # 3+1-2 > 0; 3-1-2 = 0, a tie; -3+1+2 = 0, a tie; -6
    assert unpack(found, count)[:4].tolist() == [True, True, True, False]


def test_about_a_bit_per_row_of_the_sketch_travels_each_way() -> None:
    run = sparsona.run("pfed1bs", data="digits", clients=4, rounds=3, model="mlp:32", engine="inprocess")
    bits = 8 * run.summary["bytes"]["up"] / (4 * 3)
    rows = int(0.1 * run.summary["weights"])
    assert rows * 0.5 < bits < rows + 8 * 60, "the frame has some bytes of its own"
