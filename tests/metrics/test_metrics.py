"""Every metric against scikit-learn, on random answers with ties, and where it is not defined."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, Metric, metric

CLASSES: dict[str, Callable[[Answers], float]] = {
    "accuracy": lambda a: sk.accuracy_score(a.targets, a.predictions),
    "balanced-accuracy": lambda a: sk.balanced_accuracy_score(a.targets, a.predictions),
    "auc": lambda a: _per_class(sk.roc_auc_score, a),
    "average-precision": lambda a: _per_class(sk.average_precision_score, a),
    "f1": lambda a: sk.f1_score(a.targets, a.predictions, average="binary" if a.is_binary else "macro"),
    "log-loss": lambda a: sk.log_loss(a.targets, a.probabilities, labels=range(a.probabilities.shape[1])),
    "brier": lambda a: (
        sk.brier_score_loss(a.targets == 1, a.probabilities[:, 1])
        if a.is_binary
        else sk.brier_score_loss(a.targets, a.probabilities, labels=range(a.probabilities.shape[1]))
    ),
    "sensitivity": lambda a: sk.recall_score(
        a.targets, a.predictions, labels=None if a.is_binary else np.unique(a.targets), average=_average(a)
    ),
    "specificity": lambda a: np.mean(
        [sk.recall_score(a.targets != c, a.predictions != c) for c in ([1] if a.is_binary else np.unique(a.targets))]
    ),
}


def _average(answers: Answers) -> str:
    return "binary" if answers.is_binary else "macro"


def _per_class(of: Any, answers: Answers) -> float:
    chosen = [1] if answers.is_binary else np.unique(answers.targets)
    return float(np.mean([of(answers.targets == c, answers.probabilities[:, c]) for c in chosen]))


NUMBERS = {
    "mae": sk.mean_absolute_error,
    "rmse": sk.root_mean_squared_error,
    "r2": sk.r2_score,
    "median-absolute-error": sk.median_absolute_error,
}


def classified(seed: int, rows: int, classes: int, levels: int) -> Answers:
    """Random answers; few `levels` make ties. The first two rows are of different classes."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(1, levels + 1, (rows, classes)).astype(np.float64)
    probabilities = raw / raw.sum(1, keepdims=True)
    targets = rng.integers(0, classes, rows)
    targets[:2] = 0, 1
    return Answers("classification", probabilities.argmax(1), probabilities, targets)


@pytest.mark.filterwarnings("ignore:y_pred contains classes")
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(2, 5), st.sampled_from([2, 5, 10**6]))
def test_metrics_of_classes_are_those_of_scikit_learn(seed: int, rows: int, classes: int, levels: int) -> None:
    answers = classified(seed, rows, classes, levels)
    for name, theirs in CLASSES.items():
        found = METRICS.get(name).value(answers)
        if name == "f1" and math.isnan(found):
            continue
        assert found == pytest.approx(theirs(answers), abs=1e-9), name


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 3))
def test_metrics_of_numbers_are_those_of_scikit_learn(seed: int, rows: int, targets: int) -> None:
    rng = np.random.default_rng(seed)
    said, true = rng.normal(size=(2, rows, targets)).round(1)
    true[0], true[1] = -9.0, 9.0
    answers = Answers("regression", said, np.zeros((rows, 0)), true)
    for name, theirs in NUMBERS.items():
        assert METRICS.get(name).value(answers) == pytest.approx(theirs(true, said), abs=1e-9), name


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 80))
def test_the_calibration_error_is_that_of_the_reliability_curve(seed: int, rows: int) -> None:
    answers = classified(seed, rows, 2, 7)
    promised = answers.probabilities[:, 1]
    shares, means = calibration_curve(answers.targets, promised, n_bins=10)
    counts = np.bincount(np.searchsorted(np.linspace(0, 1, 11)[1:-1], promised), minlength=10)
    expected = (np.abs(shares - means) * counts[counts > 0]).sum() / rows
    assert METRICS.get("calibration-error").value(answers) == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_labels_count_where_they_are_known(seed: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities = rng.random((30, 3))
    targets = rng.integers(0, 2, (30, 3)).astype(np.float64)
    targets[:2] = [[0] * 3, [1] * 3]
    targets[2:][rng.random((28, 3)) < 0.3] = np.nan
    answers = Answers("multilabel", (probabilities > 0.5).astype(np.float64), probabilities, targets)
    known = ~np.isnan(targets)
    areas = [sk.roc_auc_score(targets[known[:, k], k], probabilities[known[:, k], k]) for k in range(3)]
    auc = METRICS.get("auc")
    assert auc.value(answers) == pytest.approx(np.mean(areas))
    assert auc.for_label(1, "fever").value(answers) == pytest.approx(areas[1])
    right = (answers.predictions == targets)[known].mean()
    assert METRICS.get("accuracy").value(answers) == pytest.approx(right)


@pytest.mark.parametrize(("name", "one"), list(METRICS), ids=METRICS.names())
def test_no_rows_and_answers_that_are_no_numbers_have_no_score(name: str, one: Metric) -> None:
    task = one.tasks[0]
    rows, width = np.zeros(0, np.int64), 2
    shape = (0, 1) if task == "regression" else (0,)
    empty = Answers(task, rows.reshape(shape), np.zeros((0, width)), rows.reshape(shape))
    assert math.isnan(one.value(empty))
    if task == "classification":
        broken = Answers(task, np.array([0, 1]), np.array([[np.nan, np.nan], [0.5, 0.5]]), np.array([0, 1]))
    else:
        broken = Answers(task, np.array([[np.nan], [1.0]]), np.zeros((2, 0)), np.array([[0.0], [1.0]]))
    assert math.isnan(one.value(broken))


@pytest.mark.parametrize("name", ["auc", "average-precision"])
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_no_ranking(name: str, label: int) -> None:
    answers = Answers("classification", np.array([0, 1]), np.array([[0.6, 0.4], [0.3, 0.7]]), np.array([label] * 2))
    assert math.isnan(METRICS.get(name).value(answers))


def test_what_no_row_can_show_is_not_defined() -> None:
    negatives = Answers("classification", np.array([0, 0]), np.array([[0.6, 0.4], [0.7, 0.3]]), np.array([0, 0]))
    for name, defined in {"sensitivity": False, "specificity": True, "f1": False, "balanced-accuracy": True}.items():
        assert math.isnan(METRICS.get(name).value(negatives)) is not defined, name
    same = Answers("regression", np.array([[1.0], [2.0]]), np.zeros((2, 0)), np.array([[5.0], [5.0]]))
    assert math.isnan(METRICS.get("r2").value(same))


def test_a_class_that_no_model_knows_counts_as_wrong() -> None:
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    answers = Answers("classification", probabilities.argmax(1), probabilities, np.array([0, 1, -1]))
    assert METRICS.get("accuracy").value(answers) == pytest.approx(2 / 3)
    assert METRICS.get("log-loss").value(answers) > 10
    assert METRICS.get("auc").value(answers) == 1.0


def test_the_other_class_can_be_the_positive_one() -> None:
    answers = classified(3, 40, 2, 10**6)
    other = Answers("classification", answers.predictions, answers.probabilities, answers.targets, positive=0)
    values = {name: METRICS.get(name).value for name in ("sensitivity", "specificity", "auc")}
    assert values["sensitivity"](other) == values["specificity"](answers)
    assert values["auc"](other) == pytest.approx(values["auc"](answers))


def test_a_plug_in_is_a_function_with_a_decorator() -> None:
    @metric("classification", higher_is_better=False, additive=True)
    def missed_cost(answers: Answers) -> Array:
        """Cost of wrong answers."""
        wrong: Array = answers.predictions != answers.targets
        return wrong * np.where(answers.targets == answers.positive, 10.0, 1.0)

    assert missed_cost.name == "missed-cost"
    answers = Answers("classification", np.array([0, 1]), np.full((2, 2), 0.5), np.array([1, 0]))
    assert missed_cost.value(answers) == 5.5


@pytest.mark.parametrize(("name", "one"), list(METRICS), ids=METRICS.names())
def test_a_metric_reaches_worker_processes(name: str, one: Metric) -> None:
    assert pickle.loads(pickle.dumps(one)) is one  # noqa: S301
    fever = one.for_label(1, "fever")
    assert pickle.loads(pickle.dumps(fever)) == fever  # noqa: S301


def test_every_metric_says_how_it_is_read() -> None:
    names = dict(METRICS)
    assert {one.unit for one in names.values()} == {"%", "number", "target"}
    assert [name for name, one in names.items() if not one.higher_is_better] == [
        "brier", "calibration-error", "log-loss", "mae", "median-absolute-error", "rmse",
    ]  # fmt: skip
    assert all(one.name == name and METRICS.describe()[name] for name, one in names.items())
