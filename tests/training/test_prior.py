"""The log prior: what training adds to the outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

import sparsona
from sparsona.chance import Chance
from sparsona.data.dataset import Dataset
from sparsona.errors import InputError
from sparsona.training.objective import classification
from sparsona.training.prior import balanced_weights, log_prior
from sparsona.training.runner import ModelRunner

RNG = np.random.default_rng(5)
DATA = Dataset("toy", RNG.normal(size=(12, 3)).astype(np.float32), np.arange(12) % 4, 4)
PRIOR = log_prior(np.array([0, 0, 0, 1, 3]), 4)


def runner(trainer: Any) -> ModelRunner:
    return ModelRunner(nn.Sequential(nn.Linear(3, 4)), DATA, classification(), Chance(0), "cpu", trainer)


@pytest.mark.parametrize("trainer", ["plain", "fused"])
def test_the_gradient_is_that_of_a_net_whose_bias_holds_the_prior(trainer: str) -> None:
    own = runner(trainer)
    weights = RNG.normal(size=16).astype(np.float32)
    held = weights.copy()
    held[-4:] += PRIOR
    with own.adding(PRIOR):
        found, losses = own.gradient(weights, np.arange(12)), own.losses(weights, np.arange(12))
    np.testing.assert_allclose(found, own.gradient(held, np.arange(12)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(losses, own.losses(held, np.arange(12)), rtol=1e-4, atol=1e-6)
    assert own.prior is None, "it ends with the block"


def test_it_needs_classes_and_an_output_bias() -> None:
    bare = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))
    with pytest.raises(InputError, match="ends in a bias with one number per class"):
        sparsona.run("fedavg", data="digits", rounds=1, model=bare, training={"logit_prior": True})


def rare(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Two clients whose positive class has about one row in ten."""
    out = {}
    for name in ("east", "west"):
        x = rng.normal(size=(400, 4)).astype(np.float32)
        out[name] = (x, (x[:, 0] + rng.normal(size=400) > 1.8).astype(np.int64))
    return out


def test_balanced_classes_find_more_of_the_rare_one_in_every_trainer() -> None:
    data = rare(np.random.default_rng(0))
    found = {
        (trainer, weights): sparsona.run(
            "fedavg", data=data, rounds=6, trainer=trainer, metrics="sensitivity", training={"class_weights": weights}
        )
        for trainer in ("plain", "fused")
        for weights in ("none", "balanced")
    }
    for trainer in ("plain", "fused"):
        plain, balanced = (
            found[trainer, weights].summary["sensitivity"]["pre"]["mean"] for weights in ("none", "balanced")
        )
        assert balanced > plain + 0.2
    one, other = (found[trainer, "balanced"].models["east"].model for trainer in ("plain", "fused"))
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=1e-4)


def test_steps_of_a_methods_own_are_weighted_too() -> None:
    data = rare(np.random.default_rng(1))
    plain, balanced = (
        sparsona.run("per-fedavg", data=data, rounds=3, metrics="log-loss", training={"class_weights": weights}).summary
        for weights in ("none", "balanced")
    )
    assert plain["digest"] != balanced["digest"]


def test_classes_are_weighted_by_their_shares() -> None:
    weights = balanced_weights(np.repeat([0, 1], [90, 10]), 2)
    assert weights[1] / weights[0] == pytest.approx(9)
    assert (weights * [90, 10]).sum() == pytest.approx(100)
    held = balanced_weights(np.repeat([0, 1], [90, 10]), 2, least=30)
    assert held[1] / held[0] == pytest.approx(3)


def test_numbers_have_no_classes_to_weigh() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(InputError, match="class_weights"):
        sparsona.run("local", data={"a": (x, x[:, 0])}, task="regression", training={"class_weights": "balanced"})
