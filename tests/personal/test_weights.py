"""The weights of a pool."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsona.personal.weights import (
    Table,
    equal_weights,
    next_weights,
    own_weights,
    statistics,
    statistics_size,
)


def answers(seed: int, rows: int = 400, experts: int = 3) -> Table:
    """Probabilities of what is true, by experts of which the first is good where the second is bad."""
    rng = np.random.default_rng(seed)
    found = rng.beta(2, 2, (rows, experts))
    found[: rows // 2, 0], found[rows // 2 :, 0] = 0.95, 0.3
    found[: rows // 3, 1] = 0.2
    return found


def loss(found: Table, weights: Table) -> float:
    return float(-np.log(found @ weights).mean())


def best(found: Table) -> float:
    """The least loss on a fine grid over the weights of three experts."""
    steps = np.linspace(0, 1, 41)
    grid = [(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1]
    return min(loss(found, np.array(w)) for w in grid)


@given(st.integers(0, 1000))
def test_a_few_rounds_of_sums_find_the_best_common_weights(seed: int) -> None:
    found, weights = answers(seed), equal_weights(3)
    for _ in range(6):
        parts = [statistics(part, None, weights) for part in np.array_split(found, 7)]
        assert all(len(part) == statistics_size(3) for part in parts)
        weights = next_weights(np.sum(parts, 0), weights)
        assert weights.sum() == pytest.approx(1, abs=1e-5)
        assert weights.min() >= 0
    assert loss(found, weights.astype(np.float64)) < best(found) + 1e-3


def test_for_numbers_one_round_is_exact() -> None:
    rng = np.random.default_rng(0)
    found = rng.normal(size=(300, 2))
    targets = found @ np.array([0.8, 0.2])
    weights = equal_weights(2)
    assert next_weights(statistics(found, targets, weights), weights) == pytest.approx([0.8, 0.2], abs=1e-3)


def test_no_rows_leave_the_weights_as_they_are() -> None:
    weights = equal_weights(2)
    nothing = np.zeros((0, 2))
    assert next_weights(statistics(nothing, None, weights), weights) == pytest.approx([0.5, 0.5])
    assert own_weights(nothing, None, weights) == pytest.approx([0.5, 0.5])


def test_a_clients_own_weights_leave_the_common_ones_as_its_rows_grow() -> None:
    common = np.array([0.5, 0.5], np.float32)
    good = np.array([[0.9, 0.1]])
    few, many = (own_weights(np.repeat(good, rows, 0), None, common) for rows in (3, 3000))
    assert 0.5 < few[0] < 0.75
    assert many[0] > 0.95


def test_own_weights_of_numbers_follow_the_smaller_error() -> None:
    rng = np.random.default_rng(1)
    targets = rng.normal(size=500)
    found = np.stack([targets + rng.normal(0, 0.1, 500), targets + rng.normal(0, 2, 500)], 1)
    assert own_weights(found, targets, equal_weights(2))[0] > 0.9
