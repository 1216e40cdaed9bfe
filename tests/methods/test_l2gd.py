"""L2GD: step by step what the paper writes, between local training and the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.errors import InputError
from sparsona.message import Message, Stamp
from sparsona.methods.l2gd import L2GD, ClientState
from sparsona.testing import check_method, tiny_setup
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner


def test_the_contract() -> None:
    check_method(L2GD())


def local_of(method: L2GD, round: int) -> Local:
    setup = tiny_setup(method)
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    return Local("c0", round, setup.task, setup.config, setup.federation.splits["c0"], runner)


def test_the_steps_towards_the_mean() -> None:
    """w <- w - eta lam / (N p) (w - mean), eta = N (1 - p) lr, as often as the coin falls that way in a row."""
    method = L2GD(lam=0.5, p=0.3)
    local = local_of(method, 7)
    rng = np.random.default_rng(0)
    mean, w = (rng.normal(size=local.layout.size).astype(np.float32) for _ in range(2))
    down = Message(mean=mean).stamped(Stamp(7))
    steps = int(local.task.chance.rng("l2gd/mean", round=7).geometric(0.7))
    eta = 3 * 0.7 * local.rate
    expected = w.astype(np.float64)
    for _ in range(steps):
        expected = expected - eta * 0.5 / (3 * 0.3) * (expected - mean)
    np.testing.assert_allclose(method.personal_model(ClientState(w), down, local), expected, atol=1e-6)
    np.testing.assert_array_equal(method.personal_model(ClientState(None), down, local), mean)


def test_the_coin_is_the_same_for_all_and_fair() -> None:
    chance = tiny_setup(L2GD()).task.chance
    steps = [chance.rng("l2gd/local", round=t).geometric(0.05) for t in range(3000)]
    assert np.mean(steps) == pytest.approx(20, rel=0.1)
    assert min(steps) >= 1


def test_without_a_penalty_nobody_moves_towards_the_mean() -> None:
    alike: dict[str, Any] = {"data": "digits", "clients": 3, "rounds": 2, "evaluation": {"every": 0}}
    free = sparsona.run(L2GD(lam=0.0), **alike)
    pulled = sparsona.run(L2GD(lam=0.4), **alike)

    def spread(result: sparsona.Result) -> float:
        return float(np.stack([np.asarray(m.model) for m in result.models.values()]).std(0).mean())

    assert spread(pulled) < 0.9 * spread(free)


def test_a_step_beyond_the_mean_is_refused() -> None:
    with pytest.raises(InputError, match="lower lam or lr, or raise p"):
        sparsona.run(L2GD(lam=5.0, p=0.05), data="digits", clients=3, rounds=2)
