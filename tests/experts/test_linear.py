"""Linear models alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sparsona.data.dataset import Array
from sparsona.experts.arrays import Constant, LinearModel
from sparsona.experts.linear import fit_linear
from sparsona.experts.refitted import ExpertModel
from sparsona.experts.rows import OwnRows

RNG = np.random.default_rng(3)
INPUTS = RNG.normal(size=(200, 4)).astype(np.float32) * np.array([1, 100, 1, 0], np.float32)
INPUTS += np.array([0, 50, 0, 7], np.float32)
"""The columns have different scales, and the last one is constant."""


def rows(kind: Any, targets: Array, outputs: int) -> OwnRows:
    return OwnRows(kind, outputs, INPUTS[:160], targets[:160], INPUTS[160:], targets[160:], 1)


def outputs_of(model: ExpertModel, inputs: Array = INPUTS) -> Array:
    found: Array = model.predict(lambda weights, batch: batch, torch.from_numpy(inputs)).numpy()
    return found


def test_ridge_finds_a_line_whatever_the_columns_scales() -> None:
    targets = (2 * INPUTS[:, :1] - 0.01 * INPUTS[:, 1:2] + 3).astype(np.float32)
    found = fit_linear(rows("regression", targets, 1))
    for model in (found.used, found.checked):
        assert np.abs(outputs_of(model) - targets).max() < 0.02
    assert isinstance(found.used, LinearModel)
    assert found.used.weight[0, 3] == 0, "a constant column says nothing"


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_gives_every_class_its_share(classes: int) -> None:
    targets = np.digitize(INPUTS[:, 0], [0.0, 1.0][: classes - 1])
    found = fit_linear(rows("classification", targets, 5)).used
    outputs = outputs_of(found)
    assert (outputs.argmax(1) == targets).mean() > 0.9
    shares = torch.from_numpy(outputs).softmax(1).numpy()
    assert shares[:, classes:].max() < 0.02, "classes that the client lacks"


def test_noise_gets_a_large_penalty() -> None:
    targets = RNG.integers(0, 2, 200)
    found = fit_linear(rows("classification", targets, 2)).used
    shares = torch.from_numpy(outputs_of(found)).softmax(1).numpy()
    assert np.abs(shares[:, 1] - targets.mean()).mean() < 0.15


def test_labels_that_are_unknown_do_not_count_and_one_value_is_a_constant() -> None:
    targets = np.stack([INPUTS[:, 0] > 0, np.zeros(200)], 1).astype(np.float32)
    targets[::5, 0] = np.nan
    outputs = outputs_of(fit_linear(rows("multilabel", targets, 2)).used)
    assert ((outputs[:, 0] > 0) == (INPUTS[:, 0] > 0)).mean() > 0.9
    assert outputs[:, 1] == pytest.approx(outputs[0, 1])


def test_one_class_is_a_constant_answer() -> None:
    assert isinstance(fit_linear(rows("classification", np.zeros(200, np.int64), 2)).used, Constant)


def test_class_weights_count_a_rare_class_like_the_others() -> None:
    targets = (INPUTS[:, 0] + RNG.normal(size=200) > 1.8).astype(np.int64)
    plain = rows("classification", targets, 2)
    shares = {}
    for one in (plain, replace(plain, balanced=True)):
        found = fit_linear(one).checked
        shares[one.balanced] = (outputs_of(found).argmax(1) == 1).mean()
    assert shares[True] > 2 * max(shares[False], targets.mean())
