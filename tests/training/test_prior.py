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
from sparsona.training.prior import log_prior
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
