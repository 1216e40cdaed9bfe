"""Masks: the next mask against a plain sort, means to the bit, bits at rest."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Positions
from sparsona.ops.masks import (
    annealed,
    flipped,
    gather,
    majority,
    masked_mean,
    pack,
    random_mask,
    regrown,
    scatter,
    unpack,
)
from sparsona.ops.mean import weighted_mean


def plain_regrown(active: np.ndarray, weights: np.ndarray, scores: np.ndarray, rate: float) -> np.ndarray:
    """The specification, word by word: stable sorts, ties to the lower index."""
    inside = [i for i in range(len(active)) if active[i]]
    count = ceil(rate * len(inside))
    dropped = sorted(inside, key=lambda i: (abs(weights[i]), i))[:count]
    rest = [i for i in range(len(active)) if not active[i] or i in dropped]
    grown = sorted(rest, key=lambda i: (-abs(scores[i]), i))[:count]
    out = active.copy()
    out[dropped] = False
    out[grown] = True
    return out


few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 1e-30, 1e30])  # ties and zeros on purpose


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), few, few), max_size=30), st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
def test_the_next_mask_is_that_of_a_plain_sort(rows: list[tuple[bool, float, float]], rate: float) -> None:
    active = np.array([r[0] for r in rows], np.bool_)
    weights, scores = (np.array([r[i] for r in rows], np.float32) for i in (1, 2))
    out = regrown(active, weights, scores, rate)
    assert (out == plain_regrown(active, weights, scores, rate)).all()
    assert out.sum() == active.sum()


def test_a_dense_tensor_stays_dense_and_an_empty_one_empty() -> None:
    ones = np.ones(9, np.bool_)
    numbers = np.arange(9, dtype=np.float32)
    assert regrown(ones, numbers, numbers, 0.5).all()
    assert not regrown(~ones, numbers, numbers, 0.5).any()


def test_hamming_distance_is_twice_what_did_not_come_back() -> None:
    rng = np.random.default_rng(0)
    active = rng.random(1000) < 0.5
    weights, scores = rng.normal(size=(2, 1000)).astype(np.float32)
    out = regrown(active, weights, scores, 0.3)
    count = ceil(0.3 * active.sum())
    inside = np.flatnonzero(active)
    dropped = inside[np.argsort(np.abs(weights[inside]), kind="stable")[:count]]
    again = int(out[dropped].sum())
    assert int((out != active).sum()) == 2 * (count - again)
    assert 0 < again < count


def test_annealing_ends_at_exactly_0_and_stays_there() -> None:
    rates = [annealed(0.5, t, 20) for t in range(25)]
    assert rates[0] == 0.5
    assert rates[19:] == [0.0] * 6
    assert all(a > b for a, b in pairwise(rates[:20]))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_bits_at_rest(size: int) -> None:
    mask = np.random.default_rng(size).random(size) < 0.5
    assert len(pack(mask)) == -(-size // 8)
    assert (unpack(pack(mask), size) == mask).all()


def test_a_change_is_its_own_inverse_and_must_fit() -> None:
    mask = np.array([True, False, True, False])
    change = Positions(4, np.array([0, 3]))
    assert flipped(mask, change).tolist() == [False, False, True, True]
    assert (flipped(flipped(mask, change), change) == mask).all()
    assert mask.tolist() == [True, False, True, False]
    with pytest.raises(WireError, match="5 positions does not fit a mask of 4"):
        flipped(mask, Positions(5, np.array([0])))


def test_random_masks_have_the_counts_asked_for() -> None:
    layout = Layout.of(nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 4)))
    mask = random_mask(layout, [100, 20, 80, 0], lambda layer: np.random.default_rng(layer))
    assert [int(mask[t.slice].sum()) for t in layout.tensors] == [100, 20, 80, 0]
    again = random_mask(layout, [100, 20, 80, 0], lambda layer: np.random.default_rng(layer))
    assert (mask == again).all()


def test_masks_of_ones_give_the_plain_mean_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(7, 500)).astype(np.float32)
    ones = np.ones(500, np.bool_)
    plain = weighted_mean((1, v) for v in vectors)
    for everyone in (True, False):
        assert (masked_mean(vectors[0] * 3, ((ones, v) for v in vectors), everyone) == plain).all()


def test_the_mean_is_the_update_of_the_paper() -> None:
    rng = np.random.default_rng(2)
    weights = rng.normal(size=300).astype(np.float32)
    masks = rng.random((5, 300)) < 0.4
    trained = rng.normal(size=(5, 300)).astype(np.float32)
    replies = [(m, v[m]) for m, v in zip(masks, trained, strict=True)]
    updates = np.where(masks, weights.astype(np.float64) - trained, 0)
    assert np.abs(masked_mean(weights, replies) - (weights - updates.sum(0) / 5)).max() < 1e-6
    holders = masks.sum(0)
    counted = masked_mean(weights, replies, everyone=False)
    assert np.abs(counted - (weights - updates.sum(0) / np.maximum(holders, 1))).max() < 1e-6
    for out in (masked_mean(weights, replies), counted):
        assert (out[holders == 0] == weights[holders == 0]).all()
        assert (holders == 0).any()


def test_the_majority_has_as_many_entries_in_each_tensor() -> None:
    layout = Layout.of(nn.Linear(4, 1))
    masks = np.array([[1, 1, 0, 0, 1], [1, 0, 1, 0, 1], [1, 0, 0, 1, 1], [0, 0, 1, 1, 1]], np.bool_)
    assert majority(masks, layout).tolist() == [True, False, True, False, True]


def test_scatter_puts_values_where_the_mask_is() -> None:
    mask = np.array([False, True, True])
    assert scatter(mask, np.array([3, 4], np.float32)).tolist() == [0, 3, 4]
    assert gather(mask, scatter(mask, np.array([3, 4], np.float32))).tolist() == [3, 4]
