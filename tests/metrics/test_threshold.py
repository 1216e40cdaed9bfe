from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_curve

from sparsona.errors import InputError
from sparsona.metrics import METRICS, Answers
from sparsona.metrics._threshold import ThresholdRule


def answers(seed: int, rows: int, digits: int) -> Answers:
    rng = np.random.default_rng(seed)
    yes, targets = rng.random(rows).round(digits), rng.integers(0, 2, rows)
    targets[:2] = 0, 1
    return Answers("classification", (yes > 0.5).astype(np.int64), np.stack([1 - yes, yes], 1), targets)


def at(found: Answers, threshold: float) -> dict[str, float]:
    said = (found.probabilities[:, 1] >= threshold).astype(np.int64)
    moved = Answers("classification", said, found.probabilities, found.targets)
    return {name: METRICS.get(name).value(moved) for name in ("sensitivity", "specificity")}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.sampled_from([1, 6]))
def test_youden_is_the_best_point_of_the_roc_curve(seed: int, rows: int, digits: int) -> None:
    found = answers(seed, rows, digits)
    threshold = ThresholdRule().choose(found)
    false, true, _ = roc_curve(found.targets, found.probabilities[:, 1])
    if max(true - false) <= 1e-12:
        assert threshold is None, "no threshold is better than chance"
        return
    assert threshold is not None
    assert sum(at(found, threshold).values()) - 1 == pytest.approx(max(true - false))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.sampled_from([0.5, 0.9, 1.0]))
def test_a_wanted_sensitivity_is_reached_and_no_threshold_above_reaches_it(seed: int, rows: int, wanted: float) -> None:
    found = answers(seed, rows, 6)
    threshold = ThresholdRule(wanted).choose(found)
    assert threshold is not None
    assert at(found, threshold)["sensitivity"] >= wanted - 1e-9
    above = [p for p in found.probabilities[:, 1] if p > threshold]
    if above:
        higher = math.nextafter(min(above), 2)
        assert at(found, higher)["sensitivity"] < wanted or at(found, higher) == at(found, threshold)


def test_a_constant_probability_does_not_become_a_constant_yes() -> None:
    rare = np.array([0] * 19 + [1])
    constant = Answers("classification", np.zeros(20, np.int64), np.tile([0.94, 0.06], (20, 1)), rare)
    assert ThresholdRule().choose(constant) is None


def test_rows_of_one_class_choose_nothing() -> None:
    found = answers(0, 10, 6)
    one = Answers("classification", found.predictions, found.probabilities, np.zeros(10, np.int64))
    assert ThresholdRule().choose(one) is None


@pytest.mark.parametrize("text", ["best", "sensitivity", "sensitivity=2", "sensitivity=x", "youden=1"])
def test_unknown_rules_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="youden"):
        ThresholdRule.parse(text)
