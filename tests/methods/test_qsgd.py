"""QSGD under FedAvg: near it with many levels, a fraction of its bytes with few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted import vector_of

import sparsona
from sparsona.errors import WireError
from sparsona.methods.compressed import QSGD, buckets, quantise, restored
from sparsona.testing import check_method

DIGITS: dict[str, Any] = {"data": "digits", "clients": 4, "rounds": 5, "partition": "iid", "evaluation": {"every": 0}}


def test_the_contract() -> None:
    check_method(QSGD())


def test_many_levels_are_fedavg() -> None:
    fine = sparsona.run(QSGD(levels=32767, bucket=64), **DIGITS)
    plain = sparsona.run("fedavg", **DIGITS)
    np.testing.assert_allclose(vector_of(fine.models["c0"].model), vector_of(plain.models["c0"].model), atol=1e-3)


def test_few_levels_are_few_bytes() -> None:
    plain = sparsona.run("fedavg", **DIGITS).summary
    sizes, scores = [], []
    for levels in (1, 7, 127):
        found = sparsona.run(QSGD(levels=levels, bucket=128), **DIGITS).summary
        sizes.append(found["bytes"]["up"] / plain["bytes"]["up"])
        scores.append(found["accuracy"]["pre"]["mean"])
    assert sizes == sorted(sizes)
    assert sizes[0] < 0.08
    assert sizes[1] < 0.15
    assert scores[2] == pytest.approx(plain["accuracy"]["pre"]["mean"], abs=0.03)


def test_buffers_travel_whole() -> None:
    from torch import nn

    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    result = sparsona.run(QSGD(), model=module, **DIGITS)
    assert np.abs(result.models["c0"].tensors()["2.running_mean"]).max() > 1e-3


def test_the_mean_is_right_and_the_variance_bounded() -> None:
    rng = np.random.default_rng(0)
    v = rng.normal(size=40).astype(np.float32)
    for levels in (1, 4):
        drawn = np.stack([restored(*quantise(v, (40,), levels, 0, rng), (40,), levels, 0) for _ in range(4000)])
        spread = float(np.square(drawn - v).sum(1).mean())
        bound = min(40 / levels**2, np.sqrt(40) / levels) * float(np.square(v).sum())
        assert spread <= 1.05 * bound, "lemma 3.1 of the paper"
        np.testing.assert_allclose(drawn.mean(0), v, atol=5 * np.sqrt(bound / 40 / 4000) + 0.05)


def test_whole_steps_are_exact_and_zero_is_zero() -> None:
    rng = np.random.default_rng(1)
    v = np.array([3, -4, 0, 0], np.float32)
    np.testing.assert_allclose(restored(*quantise(v, (4,), 5, 0, rng), (4,), 5, 0), v, atol=1e-6)
    norms, steps = quantise(np.zeros(4, np.float32), (4,), 5, 0, rng)
    assert not steps.any()
    assert not restored(norms, steps, (4,), 5, 0).any()


def test_buckets_do_not_cross_tensors() -> None:
    assert [(b.start, b.stop) for b in buckets((5, 0, 3), 4)] == [(0, 4), (4, 5), (5, 8)]
    assert [(b.start, b.stop) for b in buckets((5, 3), 0)] == [(0, 5), (5, 8)]
    v = np.array([1e-6, 1e-6, 1e6], np.float32)
    out = restored(*quantise(v, (2, 1), 3, 0, np.random.default_rng(2)), (2, 1), 3, 0)
    assert out[2] == 1e6
    assert out[:2].max() < 1e-5


def test_a_reply_that_does_not_fit_is_refused() -> None:
    with pytest.raises(WireError, match="do not fit"):
        restored(np.ones(2, np.float32), np.zeros(4, np.int16), (4,), 3, 0)
