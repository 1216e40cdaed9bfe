"""QSGD under FedAvg: near it with many levels, a fraction of its bytes with few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted import vector_of

import sparsona
from sparsona.methods.qsgd import QSGD
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
