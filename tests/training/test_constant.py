from __future__ import annotations

import numpy as np
import pytest

import sparsona
from sparsona.metrics import METRICS
from sparsona.report.words import no_better_than_constant
from sparsona.training.constant import constant_answers
from sparsona.training.objective import classification, multilabel, regression


def test_the_most_frequent_class_the_mean_and_the_shares_of_labels() -> None:
    train, test = np.arange(4), np.arange(4, 6)
    classes = np.array([0, 0, 0, 1, 0, 1])
    said = constant_answers(classification(), classes, train, test, 2)
    assert said.predictions.tolist() == [0, 0]
    assert said.probabilities.tolist() == [[0.75, 0.25]] * 2
    assert METRICS.get("accuracy").value(said) == 0.5
    numbers = np.array([1.0, 2.0, 3.0, 6.0, 3.0, 5.0])
    assert METRICS.get("mae").value(constant_answers(regression(), numbers, train, test, 0)) == 1.0
    labels = np.array([[1, 0], [1, np.nan], [1, 0], [0, 1], [1, 1], [1, 0]], np.float64)
    assert METRICS.get("accuracy").value(constant_answers(multilabel(), labels, train, test, 0)) == 0.75


def test_a_rare_class_that_is_never_found_is_warned_of() -> None:
    rng = np.random.default_rng(0)
    data = {}
    for name in ("east", "west"):
        x = rng.normal(size=(300, 3)).astype(np.float32)
        data[name] = (x, (rng.random(300) < 0.05).astype(np.int64))
    summary = sparsona.run("fedavg", data=data, rounds=2).summary
    assert summary["constant"]["mean"] == pytest.approx(summary["accuracy"]["pre"]["mean"], abs=0.02)
    assert "--metric auc" in no_better_than_constant(summary)
    assert no_better_than_constant(sparsona.run("fedavg", data="digits", rounds=8, clients=3).summary) == ""
