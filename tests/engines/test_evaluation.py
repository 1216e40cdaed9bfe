"""A model that was measured before is not measured again, and nobody can tell from the scores."""

from __future__ import annotations

import pytest
from engine_helpers import Half, Stateful, run

from sparsona.engines.inprocess import InProcess
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.worker import Evaluator
from sparsona.method import Method
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedavg_ft import FedAvgFT
from sparsona.methods.local import LocalOnly
from sparsona.testing import tiny_setup
from sparsona.training.runner import ModelRunner


@pytest.mark.parametrize("method", [Stateful(), LocalOnly(), FedAvg(), FedAvgFT()])
def test_skipping_changes_no_score(method: Method[object, object], monkeypatch: pytest.MonkeyPatch) -> None:
    setup = tiny_setup(method, 4, rounds=5)
    monkeypatch.setattr(Evaluator, "WORTHWHILE", 10**9)
    always = run(InProcess(setup), setup, Half(), Evaluation(ft=True))
    monkeypatch.setattr(Evaluator, "WORTHWHILE", 0)
    skipping = run(InProcess(setup), setup, Half(), Evaluation(ft=True))
    assert always.rounds == skipping.rounds


def test_whoever_did_not_train_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    scores = ModelRunner.scores

    def counted(self: ModelRunner, *args: object) -> list[tuple[float, ...]]:
        measured.append(1)
        return scores(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ModelRunner, "scores", counted)
    monkeypatch.setattr(Evaluator, "WORTHWHILE", 0)
    setup = tiny_setup(LocalOnly(), 4, rounds=4)
    run(InProcess(setup), setup, Half(), Evaluation(post="participants"))
    # Two of four train in each round: their new models are measured once, as `post`, and known as `pre`. The models
    # of the others are new in the first round only. In the last round the other two are tried, which is new, too.
    assert len(measured) == 2 * 4 + 2 + 2
