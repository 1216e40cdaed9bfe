"""Greedy and exact choices of blocks."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparsona.layout import Layout
from sparsona.methods.pfedgate.blocks import Cut
from sparsona.methods.pfedgate.knapsack import Budget, exact, fixed_part, greedy

ITEMS = st.lists(st.tuples(st.integers(0, 10), st.integers(1, 40)), min_size=1, max_size=9)


def brute_force(values: np.ndarray, sizes: np.ndarray, capacity: int) -> int:
    choices = np.array(list(product((False, True), repeat=len(values))))
    return int((choices @ values)[choices @ sizes <= capacity].max())


@settings(deadline=None)
@given(items=ITEMS, capacity=st.integers(0, 120))
def test_exact_is_as_good_as_brute_force(items: list[tuple[int, int]], capacity: int) -> None:
    values, sizes = (np.array(column) for column in zip(*items, strict=True))
    taken = exact(values, sizes, capacity)
    assert sizes[taken].sum() <= capacity
    assert values[taken].sum() == brute_force(values, sizes, capacity)


@settings(deadline=None)
@given(items=ITEMS, capacity=st.integers(0, 120))
def test_greedy_fits_and_is_never_better_than_exact(items: list[tuple[int, int]], capacity: int) -> None:
    values, sizes = (np.array(column) for column in zip(*items, strict=True))
    taken = greedy(values, sizes, capacity)
    assert sizes[taken].sum() <= capacity
    assert values[taken].sum() <= values[exact(values, sizes, capacity)].sum()


@settings(deadline=None)
@given(values=st.lists(st.integers(1, 10), min_size=1, max_size=12), room=st.integers(0, 12))
def test_greedy_is_exact_when_all_blocks_have_one_size(values: list[int], room: int) -> None:
    worth, sizes = np.array(values), np.full(len(values), 7)
    one, other = greedy(worth, sizes, 7 * room + 3), exact(worth, sizes, 7 * room + 3)
    assert worth[one].sum() == worth[other].sum()
    assert one.sum() == other.sum() == min(room, len(values))


@pytest.mark.parametrize("way", ["greedy", "exact"])
def test_what_is_known_of_a_cut_is_worked_out_once_and_no_choice_changes_it(way: Literal["greedy", "exact"]) -> None:
    cut = Cut.of(Layout.of(nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(32, 12), nn.Linear(12, 4))), 5)
    budget, rng = Budget(0.5, 0.2, way, whole_output=True), np.random.default_rng(0)
    batches = [rng.random(len(cut)).astype(np.float32) for _ in range(4)]
    chosen = [budget.choose(cut, importance) for importance in batches]
    assert fixed_part(budget, cut) is fixed_part(Budget(0.5, 0.2, way, whole_output=True), cut)
    assert len({mask.tobytes() for mask in chosen}) > 1
    assert all((budget.choose(cut, i) == mask).all() for i, mask in zip(batches, chosen, strict=True))


def test_equal_values_are_taken_from_the_front() -> None:
    assert greedy(np.full(4, 5), np.full(4, 2), 4).tolist() == [True, True, False, False]
