"""Filters and channels: which are kept, and that both sides agree on the entries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.methods.fedscr.structures import above, keep_structures, sent_entries, share, structures


def layout() -> Layout:
    return Layout.of(nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(5, 4)))


def test_filters_and_channels_of_a_convolution_and_of_a_linear_layer() -> None:
    where = layout()
    update = np.zeros(where.size, np.float32)
    conv = update[: 3 * 2 * 4].reshape(3, 2, 2, 2)
    conv[1, 0] = -1  # filter 1 sums to 4, channel 0 to 4
    conv[2, 1] = 0.5  # filter 2 sums to 2, channel 1 to 2
    linear = update[where["2.weight"].slice].reshape(4, 5)
    linear[0, 3] = 9
    kept = keep_structures(update, where, above(3.0))
    assert structures(where) == len(kept) == (3 + 2) + (4 + 5)
    assert kept.tolist() == [False, True, False, True, False] + [True, False, False, False] + [False] * 3 + [
        True,
        False,
    ]
    entries = sent_entries(kept, where)
    assert np.flatnonzero(entries[:24]).tolist() == [8, 9, 10, 11], "the kernel of filter 1 and channel 0"
    assert np.flatnonzero(entries[27:47]).tolist() == [3]
    assert entries[24:27].all(), "a bias is always sent"
    assert entries[47:].all(), "a bias is always sent"


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.99]))
def test_the_share_is_the_largest_that_one_threshold_allows(seed: int, rows: int, columns: int, p: float) -> None:
    cells = np.abs(np.random.default_rng(seed).normal(size=(rows, columns)))
    f, c = cells.sum(1), cells.sum(0)
    kept_f, kept_c = share(p)(f, c)
    count = kept_f.sum() * kept_c.sum()
    assert count >= 1
    cuts = np.concatenate([[0.0], f / f.max(), c / c.max()])
    options = [((f / f.max()) > t).sum() * ((c / c.max()) > t).sum() for t in cuts if t < 1]
    fitting = [n for n in options if n <= (1 - p) * rows * columns + 1e-9]
    assert count == (max(fitting) if fitting else min(options))


def test_a_tensor_that_did_not_move_sends_nothing() -> None:
    kept = keep_structures(np.zeros(layout().size, np.float32), layout(), share(0.9))
    assert not kept.any()


def test_buffers_are_not_among_the_entries() -> None:
    where = Layout.of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert len(sent_entries(np.ones(4, np.bool_), where)) == where.size == 4 + 2 + 2 + 2


def test_a_reply_about_another_model_is_refused() -> None:
    with pytest.raises(WireError, match="structures"):
        sent_entries(np.ones(3, np.bool_), layout())
