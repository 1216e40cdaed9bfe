"""One process: what it has encoded is decoded once in a hundred frames, and that changes neither bytes nor models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparsona.engines.inprocess import InProcess
from sparsona.errors import RunError
from sparsona.experiment import make_method
from sparsona.federation import rounds as loop
from sparsona.federation import worker
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import assemble
from sparsona.federation.schedule import Sampled
from sparsona.federation.setup import Setup
from sparsona.message import Message, Vector
from sparsona.methods.fedavg import FedAvg
from sparsona.runs.state import digest
from sparsona.testing import tiny_setup
from sparsona.wire import Ledger, decode
from sparsona.wire.known import EVERY


class Decoding(InProcess):
    """Decodes every frame."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.known, self._worker = None, worker.Worker(setup, self.references)


class Decoded:
    """How many frames the loop and its workers have decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for module in (worker, loop):
            monkeypatch.setattr(module, "decode", self._counting)

    def _counting(self, *given: Any, **named: Any) -> Message:
        self.count += 1
        return decode(*given, **named)


def run(setup: Setup, engine: InProcess) -> tuple[str, list[Ledger]]:
    rounds = assemble(setup, engine, Sampled(sample=0.6), LAST_ROUND)
    sizes: list[Ledger] = []
    rounds.run(lambda report: sizes.extend((report.down, report.up)))
    clients = {client: engine.store.get(client).state for client in setup.task.clients}
    engine.close()
    return digest((rounds.server, clients)), sizes


@pytest.mark.parametrize("name", ["fedavg", "fedpse", "fedspa", "fedstc", "pfednet", "spfl", "plga"])
def test_the_same_bytes_and_models_as_with_decoding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = Decoded(monkeypatch)
    setup = tiny_setup(make_method(name, {}), rounds=4)
    known, once = run(setup, InProcess(setup)), decoded.count
    assert known == run(setup, Decoding(setup))
    assert 0 < once < decoded.count - once


def test_one_frame_of_a_hundred_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, setup = Decoded(monkeypatch), tiny_setup(FedAvg(), rounds=60)
    engine = InProcess(setup)
    rounds = assemble(setup, engine, evaluation=LAST_ROUND)
    rounds.run(lambda report: report.round < 59)  # the last round also evaluates, which is decoded
    frames = 59 * 2 * len(setup.task.clients)
    assert frames >= 3 * EVERY
    assert decoded.count == -(-frames // EVERY)


def test_plain_packing_decodes_everything() -> None:
    assert InProcess(replace(tiny_setup(FedAvg()), packing="plain")).known is None


@pytest.mark.parametrize("where", [worker, loop], ids=["client", "server"])
def test_a_decoder_that_errs_ends_the_run(where: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any, **named: Any) -> Message:
        found = decode(*given, **named)
        weights: Vector = found.vector("weights") + np.float32(1)
        return Message.of({**found.parts, "weights": weights}, found.stamp)

    monkeypatch.setattr(where, "decode", wrong)
    setup = tiny_setup(FedAvg(), rounds=60)
    with pytest.raises(RunError, match="a decoded frame differs from the encoded message"):
        assemble(setup, InProcess(setup), evaluation=LAST_ROUND).run()
