"""QSGD's rounding: right in the mean, exact where it can be, and its Elias code."""

from __future__ import annotations

import numpy as np
import pytest

from sparsona.errors import WireError
from sparsona.ops.quantise import Quantised, buckets, quantise, restored


def test_the_mean_is_right_and_the_variance_bounded() -> None:
    rng = np.random.default_rng(0)
    v = rng.normal(size=40).astype(np.float32)
    for levels in (1, 4):
        drawn = np.stack([restored(quantise(v, (40,), levels, 0, rng), (40,), levels, 0) for _ in range(4000)])
        spread = float(np.square(drawn - v).sum(1).mean())
        bound = min(40 / levels**2, np.sqrt(40) / levels) * float(np.square(v).sum())
        assert spread <= 1.05 * bound, "lemma 3.1 of the paper"
        np.testing.assert_allclose(drawn.mean(0), v, atol=5 * np.sqrt(bound / 40 / 4000) + 0.05)


def test_whole_steps_are_exact_and_zero_is_zero() -> None:
    rng = np.random.default_rng(1)
    v = np.array([3, -4, 0, 0], np.float32)
    np.testing.assert_allclose(restored(quantise(v, (4,), 5, 0, rng), (4,), 5, 0), v, atol=1e-6)
    empty = quantise(np.zeros(4, np.float32), (4,), 5, 0, rng)
    assert not empty.steps.any()
    assert not restored(empty, (4,), 5, 0).any()


def test_buckets_do_not_cross_tensors() -> None:
    assert [(b.start, b.stop) for b in buckets((5, 0, 3), 4)] == [(0, 4), (4, 5), (5, 8)]
    assert [(b.start, b.stop) for b in buckets((5, 3), 0)] == [(0, 5), (5, 8)]
    v = np.array([1e-6, 1e-6, 1e6], np.float32)
    out = restored(quantise(v, (2, 1), 3, 0, np.random.default_rng(2)), (2, 1), 3, 0)
    assert out[2] == 1e6
    assert out[:2].max() < 1e-5


def test_a_reply_that_does_not_fit_is_refused() -> None:
    with pytest.raises(WireError, match="do not fit"):
        restored(Quantised(np.ones(2, np.float32), np.zeros(4, np.int16)), (4,), 3, 0)
