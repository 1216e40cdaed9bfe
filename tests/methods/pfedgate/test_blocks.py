"""How a model is cut into blocks, and the mean of blocks."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Blocks
from sparsona.methods.pfedgate.blocks import (
    Budget,
    Cut,
    blockwise_mean,
    equal_split,
    exact,
    first_split,
    fixed_part,
    greedy,
)
from sparsona.models import MODELS

NETS = {"leaf-cnn": ((1, 28, 28), 62, 40), "lenet-cifar": ((3, 32, 32), 10, 50), "cnn-cifar100": ((3, 32, 32), 100, 40)}


def layout_of(net: str) -> Layout:
    shape, outputs, _ = NETS[net]
    return Layout.of(MODELS.get(net)(shape, outputs))


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(800, [160] * 5), (32, [7, 7, 7, 7, 4]), (62, [13, 13, 13, 13, 10]), (3, [1, 1, 1]), (6, [2, 2, 2]), (1, [1])],
)
def test_equal_blocks(size: int, sizes: list[int]) -> None:
    assert equal_split(size, 5) == sizes


@pytest.mark.parametrize("size", [1, 2, 3, 9, 10, 62, 800, 51_200])
@pytest.mark.parametrize("share", [0.1, 0.2])
def test_first_block_is_as_small_as_asked(size: int, share: float) -> None:
    sizes = first_split(size, 5, share)
    assert sum(sizes) == size
    assert len(sizes) <= 5
    assert sizes[0] == (size if size == 1 else max(1, int(share * size + 1e-9)))


@pytest.mark.parametrize("net", NETS)
def test_cut_covers_the_model(net: str) -> None:
    layout = layout_of(net)
    cut = Cut.of(layout, 5)
    assert len(cut) == NETS[net][2]
    assert cut.sizes.sum() == layout.size
    assert sum(cut.first) == len(layout.tensors)
    last = [tensor.size for tensor in layout.tensors if tensor.name.startswith(f"{layout.layers[-1]}.")]
    assert cut.sizes[np.array(cut.output)].sum() == sum(last)


def test_a_single_layer_has_no_output_layer_of_its_own() -> None:
    """Else a linear model would be kept whole whatever its density."""
    assert not any(Cut.of(Layout.of(nn.Linear(4, 2)), 4).output)
    assert not any(Cut.of(Layout.of(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))), 4).output)


def test_a_norm_at_the_end_is_no_output_layer() -> None:
    cut = Cut.of(Layout.of(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), nn.BatchNorm1d(2))), 1)
    assert cut.output == (False, False, True, True, False, False)


def test_mean_by_block_over_those_who_sent_it() -> None:
    """The example of the paper's appendix A: four clients keep {0, 2}, {1, 2}, {0, 1} and {0, 1, 2}."""
    cut = Cut((0, 2, 3, 6), (True, False, False), (True, True, True), (False, False, False))
    kept = [[0, 2], [1, 2], [0, 1], [0, 1, 2]]
    rng, examples = np.random.default_rng(0), np.array([10, 20, 30, 40])
    updates = rng.normal(size=(4, 6)).astype(np.float32)
    replies = []
    for update, blocks, count in zip(updates, kept, examples, strict=True):
        mask = np.isin(np.arange(3), blocks)
        replies.append((float(count), cut.take(update, mask)))
    mean = blockwise_mean(cut, replies)
    for block, senders in enumerate(([0, 2, 3], [1, 2, 3], [0, 1, 3])):
        wanted = np.average(updates[senders][:, cut.span(block)], axis=0, weights=examples[senders])
        assert np.allclose(mean[cut.span(block)], wanted, atol=1e-7)


def test_a_block_that_nobody_sent_is_zero() -> None:
    cut = Cut((0, 2, 3), (True, False), (True, True), (False, False))
    mean = blockwise_mean(cut, [(3.0, Blocks(2, np.array([1]), np.array([5.0], np.float32)))])
    assert mean.tolist() == [0, 0, 5]


def test_blocks_that_do_not_fit_are_refused() -> None:
    cut = Cut((0, 2, 3), (True, False), (True, True), (False, False))
    for part in (Blocks(2, np.array([0]), np.zeros(1, np.float32)), Blocks(3, np.array([0]), np.zeros(2, np.float32))):
        with pytest.raises(WireError, match="do not fit"):
            cut.spread(part)


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
