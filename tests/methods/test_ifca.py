"""IFCA: it finds the clusters, and one cluster is FedAvg."""

from __future__ import annotations

from typing import Any

import numpy as np

import sparsona
from sparsona.methods.ifca import IFCA
from sparsona.testing import check_method, tiny_setup


def test_the_contract() -> None:
    check_method(IFCA(clusters=2))


def test_one_cluster_is_fedavg() -> None:
    alike: dict[str, Any] = {"data": "digits", "clients": 4, "rounds": 2, "evaluation": {"every": 0}}
    one, other = sparsona.run(IFCA(clusters=1), **alike), sparsona.run("fedavg", **alike)
    np.testing.assert_array_equal(one.models["c0"].model, other.models["c0"].model)


def test_the_first_models_differ_and_are_drawn_alike() -> None:
    task = tiny_setup(IFCA()).task
    models = IFCA(clusters=3).start_server(task).models
    np.testing.assert_array_equal(models[0], task.initial)
    for tensor in task.layout.tensors:
        a, b = models[1][tensor.slice], models[2][tensor.slice]
        np.testing.assert_array_equal(np.sort(a), np.sort(b))
    assert (models[1] != models[2]).mean() > 0.5


def test_it_finds_two_groups_with_opposite_labels() -> None:
    rng = np.random.default_rng(0)
    wards = {}
    for i in range(6):
        x = rng.normal(size=(100, 5)).astype(np.float32)
        wards[f"w{i}"] = (x, ((x[:, 0] > 0) ^ (i % 2)).astype(np.int64))
    shared: dict[str, Any] = {"data": wards, "model": "logistic", "rounds": 8, "evaluation": {"every": 0}}
    found = sparsona.run(IFCA(clusters=2), **shared)
    assert found.summary["accuracy"]["pre"]["worst"] > 0.8, "nobody is in the other group's cluster"
    assert sparsona.run("fedavg", **shared).summary["accuracy"]["pre"]["mean"] < 0.7


def test_a_cluster_that_nobody_chose_stays_as_it_was() -> None:
    from sparsona.message import Message
    from sparsona.method import Arrival, ServerContext

    method = IFCA(clusters=2)
    task = tiny_setup(method).task
    server = method.start_server(task)
    ones = np.ones(task.layout.size, np.float32)
    replies = [
        Arrival(c, Message(weights=k * ones, cluster=1, examples=n), 0) for c, k, n in (("a", 1, 1), ("b", 5, 3))
    ]
    after = method.aggregate(server, replies, ServerContext(task, 0))
    np.testing.assert_array_equal(after.models[0], server.models[0])
    np.testing.assert_array_equal(after.models[1], 4 * ones)
