from __future__ import annotations

import numpy as np
import pytest

from sparsona.metrics import METRICS, Answers
from sparsona.metrics._resampling import bootstrap, paired_test


def answers(right: np.ndarray, targets: np.ndarray, sure: float = 0.8) -> Answers:
    """Two classes; where `right`, the true one has the probability `sure`."""
    said = np.where(right, targets, 1 - targets)
    yes = np.where(said == 1, sure, 1 - sure)
    return Answers("classification", said, np.stack([1 - yes, yes], 1), targets)


def test_the_bootstrap_of_a_mean_has_the_width_that_theory_gives() -> None:
    rng = np.random.default_rng(0)
    said, true = rng.normal(size=(2, 400, 1))
    errors = np.abs(said - true)
    low, high = bootstrap(METRICS.get("mae"), Answers("regression", said, np.zeros((400, 0)), true), rng)
    assert low < errors.mean() < high
    assert (high - low) / (2 * 1.96 * errors.std() / 20) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("name", ["auc", "log-loss", "sensitivity", "f1"])
def test_the_bootstrap_holds_the_score(name: str) -> None:
    rng = np.random.default_rng(1)
    targets = rng.integers(0, 2, 120)
    found = answers(rng.random(120) < 0.8, targets)
    low, high = bootstrap(METRICS.get(name), found, np.random.default_rng(2))
    assert low < METRICS.get(name).value(found) < high


@pytest.mark.parametrize(("cases", "known"), [(1, False), (3, False), (8, True)])
def test_few_cases_have_no_interval(cases: int, known: bool) -> None:
    """The resamples that hold the one positive case differ in the others only."""
    targets = np.zeros(60, np.int64)
    targets[:cases] = 1
    found = answers(np.random.default_rng(1).random(60) < 0.8, targets)
    low, high = bootstrap(METRICS.get("auc"), found, np.random.default_rng(2))
    assert np.isfinite([low, high]).all() == known


@pytest.mark.parametrize("name", ["accuracy", "auc", "log-loss"])
def test_a_clear_difference_is_told_and_has_the_right_sign(name: str) -> None:
    rng = np.random.default_rng(3)
    targets = rng.integers(0, 2, 200)
    good, bad = answers(rng.random(200) < 0.95, targets), answers(rng.random(200) < 0.6, targets)
    gain, p = paired_test(METRICS.get(name), good, bad, np.random.default_rng(4))
    assert gain > 0
    assert p < 0.01
    gain, p = paired_test(METRICS.get(name), bad, good, np.random.default_rng(4))
    assert gain < 0
    assert p < 0.01


def test_two_rows_cannot_tell() -> None:
    targets = np.array([0, 1])
    gain, p = paired_test(
        METRICS.get("accuracy"),
        answers(np.array([True, True]), targets),
        answers(np.array([False, False]), targets),
        np.random.default_rng(0),
    )
    assert gain == 1.0
    assert p > 0.4


@pytest.mark.parametrize("name", ["accuracy", "auc"])
def test_equal_models_are_rarely_told_apart(name: str) -> None:
    told = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        targets = rng.integers(0, 2, 50)
        one, other = (answers(rng.random(50) < 0.75, targets, sure) for sure in (0.7, 0.8))
        told += paired_test(METRICS.get(name), one, other, rng)[1] < 0.05
    assert told <= 9


def test_the_same_answers_have_no_difference() -> None:
    found = answers(np.array([True, False, True]), np.array([0, 1, 1]))
    assert paired_test(METRICS.get("accuracy"), found, found, np.random.default_rng(0)) == (0.0, 1.0)
