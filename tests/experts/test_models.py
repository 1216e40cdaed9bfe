"""Which of two models is used, and which one's validation scores count."""

from __future__ import annotations

import numpy as np
import pytest

import sparsona
from sparsona.experts.models import Constant, Refitted, held_out, used
from sparsona.federation.worker import Evaluator
from sparsona.methods.fedavg import FedAvg
from sparsona.testing import tiny_setup
from sparsona.training.runner import ModelRunner

BOTH = Refitted(Constant(np.array([9, 0, 0, 0], np.float32)), Constant(np.array([0, 9, 0, 0], np.float32)))


def test_a_vector_has_seen_no_validation_rows() -> None:
    vector = np.zeros(3, np.float32)
    assert held_out(vector) is vector
    assert held_out(BOTH) is BOTH.checked
    assert used(BOTH) is BOTH.used


def test_validation_scores_are_never_those_of_a_refitted_model() -> None:
    setup = tiny_setup(FedAvg())
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    split = setup.federation.splits["c0"]
    scores = Evaluator(runner, split, ()).scores(BOTH)
    labels = setup.federation.data.targets
    assert scores.test == pytest.approx((labels[split.test] == 0).mean())
    assert scores.validation == pytest.approx((labels[split.validation] == 1).mean())


@pytest.mark.parametrize("method", ["alone-trees", "alone-linear", "naive"])
def test_a_run_alone_resumes_and_its_files_predict_as_it_did(
    method: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(0)
    wards = {}
    for ward in ("east", "west"):
        x = rng.normal(size=(120, 4)).astype(np.float32)
        wards[ward] = x, (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    out = tmp_path_factory.mktemp("alone") / "run"
    whole = sparsona.run(method, data=wards, rounds=2)
    assert [report.up.total + report.down.total for report in whole.history] == [0, 0]
    sparsona.run(method, data=wards, rounds=1, out=out)
    longer = sparsona.run(method, data=wards, rounds=2, out=out, resume=True)
    assert longer.summary["digest"] == whole.summary["digest"]
    rows = wards["east"][0]
    again = sparsona.load(out).models["east"]
    assert np.array_equal(again.probabilities(rows), whole.models["east"].probabilities(rows))
    if method == "alone-trees":
        assert whole.summary["accuracy"]["pre"]["mean"] > 0.8
