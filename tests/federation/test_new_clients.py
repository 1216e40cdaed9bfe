"""Clients that join after training: measured alike by every engine, known to the server where the method asks."""

from __future__ import annotations

from typing import Any

import pytest

import sparsona
from sparsona.engines.inprocess import InProcess
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.rounds import Rounds
from sparsona.federation.schedule import Sampled
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.spfl import SPFL
from sparsona.runs.records import RunLog
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
    sizes = {name: len(share.test) for name, share in setup.federation.splits.items()}
    rounds = Rounds(setup, InProcess(setup), Sampled(), Evaluation(every=0), RunLog(sizes, True))
    rounds.run()
    before = rounds.server
    assert rounds.join(["c0"]) == []
    assert rounds.server is before
