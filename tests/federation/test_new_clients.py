"""Clients that join after training: measured alike by every engine, known to the server where the method asks."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.engines.inprocess import InProcess
from sparsona.errors import InputError
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import assemble
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.spfl import SPFL
from sparsona.testing import tiny_setup


@pytest.mark.parametrize("method", ["fedavg", "per-fedavg", "pfednet"])
def test_all_engines_measure_new_clients_alike(method: str) -> None:
    settings: dict[str, Any] = {"data": "digits", "clients": 6, "rounds": 2, "new_clients": 0.34, "seed": 1}
    one, other = (sparsona.run(method, engine=engine, **settings).summary for engine in ("inprocess", "pool"))
    assert one["new_clients"] == other["new_clients"]
    scores = one["new_clients"]["accuracy"]
    assert scores["pre"]["mean"] != scores["post"]["mean"]


@pytest.mark.parametrize("method", [FedAvg(), SPFL()])
def test_methods_without_a_turn_for_joining_have_none(method: Any) -> None:
    setup = tiny_setup(method)
    rounds = assemble(setup, InProcess(setup), evaluation=LAST_ROUND)
    rounds.run()
    before = rounds.server
    assert rounds.join(["c0"]) == []
    assert rounds.server is before


def test_a_new_client_trains_on_the_classes_that_models_know(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    data = {}
    for number in range(4):
        x = rng.normal(size=(60, 3)).astype(np.float32)
        data[f"k{number}"] = (x, np.where(x[:, 0] > 0, number, 9))
    with caplog.at_level(logging.WARNING):
        result = sparsona.run("fedavg", data=data, rounds=2, new_clients=0.25, engine="inprocess")
    assert "training samples of the new client" in caplog.text
    assert 0 < result.summary["new_clients"]["accuracy"]["post"]["mean"] < 1, "its own class counts as wrong"
    data = {name: (x, np.full(60, number)) for number, (name, (x, _)) in enumerate(data.items())}
    with pytest.raises(InputError, match="has only classes that no other client trains on"):
        sparsona.run("fedavg", data=data, rounds=2, new_clients=0.25)
