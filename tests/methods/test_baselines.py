"""local, fedavg, fedavg-ft and fedprox: exact where they can be, and the order that must come out on real data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted import vector_of

import sparsona
from sparsona.methods.fedprox import FedProx
from sparsona.ops.mean import weighted_mean


def accuracy(method: str, partition: str, point: str = "pre") -> float:
    result = sparsona.run(method, data="digits", clients=10, partition=partition, rounds=15, evaluation={"every": 0})
    return float(result.summary["accuracy"][point]["mean"])


def test_federating_helps_when_data_are_alike_and_hurts_when_they_are_not() -> None:
    assert accuracy("fedavg", "iid") > accuracy("local", "iid") + 0.02
    assert accuracy("fedavg", "sorted:1.0") < accuracy("local", "sorted:1.0") - 0.1


def test_one_client_of_fedavg_is_local() -> None:
    alone: dict[str, Any] = {"data": "digits", "clients": 1, "partition": "iid", "rounds": 3}
    one, other = sparsona.run("fedavg", **alone), sparsona.run("local", **alone)
    assert np.array_equal(vector_of(one.models["c0"].model), vector_of(other.models["c0"].model))


def test_fedprox_without_a_pull_is_fedavg_and_with_a_strong_one_stands_still() -> None:
    alone: dict[str, Any] = {"data": "digits", "clients": 4, "rounds": 2}
    avg, prox = sparsona.run("fedavg", **alone), sparsona.run(FedProx(mu=0.0), **alone)
    assert avg.summary["digest"] == prox.summary["digest"]
    held = sparsona.run(FedProx(mu=9.0), **alone)
    start = vector_of(sparsona.run("fedavg", **alone, training={"lr": 1e-9}).models["c0"].model)

    def moved(result: sparsona.Result) -> float:
        return float(np.linalg.norm(vector_of(result.models["c0"].model) - start))

    assert moved(held) < 0.5 * moved(avg)


def test_fine_tuning_is_an_epoch_from_the_global_model() -> None:
    alone: dict[str, Any] = {"data": "digits", "clients": 5, "rounds": 4, "partition": "sorted:1.0"}
    plain = sparsona.run("fedavg", **alone, evaluation={"ft": True})
    tuned = sparsona.run("fedavg-ft", **alone)
    assert plain.summary["digest"] == tuned.summary["digest"], "the federation is the same, only the use differs"
    assert tuned.summary["accuracy"]["pre"]["mean"] > plain.summary["accuracy"]["pre"]["mean"]
    ft = plain.summary["accuracy"]["ft"]["mean"]
    assert tuned.summary["accuracy"]["pre"]["mean"] == pytest.approx(ft, abs=0.05)


def test_the_mean_is_by_examples() -> None:
    a, b = np.array([4, 0], np.float32), np.array([8, 0], np.float32)
    assert weighted_mean([(1, a), (3, b)]).tolist() == [7, 0]
    with pytest.raises(ValueError, match="at least one"):
        weighted_mean([])


def test_batchnorm_statistics_travel_and_are_averaged() -> None:
    from torch import nn

    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    result = sparsona.run("fedavg", data="digits", model=module, clients=3, rounds=3, partition="iid")
    tensors = result.models["c0"].tensors()
    assert np.abs(tensors["2.running_mean"]).max() > 1e-3
    assert np.array_equal(tensors["2.running_mean"], result.models["c1"].tensors()["2.running_mean"])
    assert result.summary["weights"] == 64 * 8 + 8 + 16 + 80 + 10, "statistics are no weights"
    assert result.summary["accuracy"]["pre"]["mean"] > 0.5
