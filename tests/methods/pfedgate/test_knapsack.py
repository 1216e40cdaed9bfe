"""Greedy and exact choices of blocks."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsona.methods.pfedgate.knapsack import exact, greedy

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


def test_equal_values_are_taken_from_the_front() -> None:
    assert greedy(np.full(4, 5), np.full(4, 2), 4).tolist() == [True, True, False, False]
