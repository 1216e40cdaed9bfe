"""Boosted trees alone: what they learn, when they stop, and what they say of what they have never seen."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sparsona.data.dataset import Array
from sparsona.errors import InputError
from sparsona.experts.fits import fit_linear, fit_trees, lightgbm
from sparsona.experts.models import Constant, ExpertModel, LinearModel, OwnRows, Trees, read_forest, scores_of
from sparsona.runs.state import digest

FEW = np.eye(4, 3, dtype=np.float32)


def table(kind: Any, targets: Any, held: int = 40, outputs: int = 1) -> OwnRows:
    """Rows of three columns, the last `held` of which are validation rows; `targets` makes their targets."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(240, 3)).astype(np.float32)
    y = targets(x)
    cut = len(x) - held
    return OwnRows(kind, outputs, x[:cut], y[:cut], x[cut:], y[cut:], 9)


def corner(x: Any) -> Any:
    return ((x[:, 0] > 0) & (x[:, 1] > 0)).astype(np.int64)


@pytest.mark.parametrize("held", [40, 5, 0])
def test_trees_learn_what_no_line_can_and_the_refitted_ones_saw_more_rows(held: int) -> None:
    found = fit_trees(table("classification", corner, held, outputs=2))
    assert isinstance(found.used, Trees)
    assert isinstance(found.checked, Trees)
    assert (found.used.rows, found.checked.rows) == (240, 240 - held)
    fresh = np.random.default_rng(6).normal(size=(500, 3)).astype(np.float32)
    for model in (found.used, found.checked):
        outputs = model.outputs(fresh)
        assert (outputs.argmax(1) == corner(fresh)).mean() > 0.9
        assert np.exp(outputs).sum(1) == pytest.approx(1)


def test_our_predictions_are_lightgbms_own() -> None:
    rows = table("classification", lambda x: corner(x) + 2 * (x[:, 2] > 0.5), outputs=4)
    found = fit_trees(rows).used
    assert isinstance(found, Trees)
    theirs = lightgbm().Booster(model_str=found.forests[0]).predict(rows.inputs, raw_score=True)
    assert scores_of(read_forest(found.forests[0]), rows.inputs) == pytest.approx(theirs, abs=1e-12)


def test_a_class_that_the_client_lacks_is_unlikely_but_possible() -> None:
    found = fit_trees(table("classification", lambda x: 3 * corner(x), outputs=5)).used
    assert isinstance(found, Trees)
    shares = np.exp(found.outputs(np.zeros((1, 3), np.float32)))[0]
    assert shares[[1, 2, 4]] == pytest.approx([1 / 5 / 241] * 3)


@pytest.mark.parametrize(
    "rows",
    [
        table("classification", lambda x: np.ones(len(x), np.int64), outputs=3),
        OwnRows("classification", 2, FEW, np.arange(4) % 2, FEW[:0], np.zeros(0, np.int64), 0),
        table("regression", lambda x: np.full((len(x), 1), 2.0, np.float32)),
    ],
    ids=["one class", "four rows", "one number"],
)
def test_where_nothing_can_be_learnt_the_answer_is_constant(rows: OwnRows) -> None:
    found = fit_trees(rows)
    assert isinstance(found.used, Constant)
    assert np.isfinite(found.used.outputs).all()


def test_numbers_have_a_forest_each_and_labels_may_be_unknown() -> None:
    numbers = fit_trees(table("regression", lambda x: np.abs(x[:, :2]), outputs=2)).used
    assert isinstance(numbers, Trees)
    fresh = np.random.default_rng(6).normal(size=(300, 3)).astype(np.float32)
    assert np.abs(numbers.outputs(fresh) - np.abs(fresh[:, :2])).mean() < 0.2

    def labels(x: Any) -> Any:
        y = np.stack([corner(x), np.ones(len(x))], 1).astype(np.float32)
        y[::7, 0] = np.nan
        return y

    found = fit_trees(table("multilabel", labels, outputs=2)).used
    assert isinstance(found, Trees)
    assert found.forests[1] == "", "a label with one value has no forest"
    outputs = found.outputs(fresh)
    assert ((outputs[:, 0] > 0) == corner(fresh)).mean() > 0.9
    assert (outputs[:, 1] > 0).all()


def test_the_same_rows_give_the_same_text() -> None:
    rows = table("classification", corner, outputs=2)
    assert digest(fit_trees(rows)) == digest(fit_trees(rows))


@pytest.mark.parametrize(
    "damage", [("left_child=", "left_child=9 "), ("decision_type=2", "decision_type=1"), ("=", "")]
)
def test_a_damaged_text_is_refused(damage: tuple[str, str]) -> None:
    found = fit_trees(table("classification", corner, outputs=2)).used
    assert isinstance(found, Trees)
    with pytest.raises(InputError, match="damaged"):
        read_forest(found.forests[0].replace(*damage))


def test_without_lightgbm_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, globals: Mapping[str, object] | None = None, locals: Mapping[str, object] | None = None,
               fromlist: Sequence[str] = (), level: int = 0) -> Any:  # fmt: skip
        if name == "lightgbm":
            raise ImportError(name)
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match=r'pip install "sparsona\[trees\]"'):
        fit_trees(table("classification", corner, outputs=2))


@pytest.mark.parametrize("held", [40, 5])
def test_class_weights_count_a_rare_class_like_the_others(held: int) -> None:
    noise = np.random.default_rng(8).normal(size=240)
    plain = table("classification", lambda x: (x[:, 0] + noise[: len(x)] > 1.8).astype(np.int64), held, outputs=2)
    assert plain.weights(plain.targets) is None
    weights = replace(plain, balanced=True).weights(plain.targets)
    assert weights is not None
    assert weights[plain.targets == 1].sum() == pytest.approx(weights[plain.targets == 0].sum(), rel=1e-5)
    shares = {}
    for one in (plain, replace(plain, balanced=True)):
        found = fit_trees(one).used
        assert isinstance(found, Trees)
        shares[one.balanced] = (found.outputs(plain.inputs).argmax(1) == 1).mean()
    assert shares[True] > shares[False]


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


def test_class_weights_count_a_rare_class_in_a_linear_model() -> None:
    targets = (INPUTS[:, 0] + RNG.normal(size=200) > 1.8).astype(np.int64)
    plain = rows("classification", targets, 2)
    shares = {}
    for one in (plain, replace(plain, balanced=True)):
        found = fit_linear(one).checked
        shares[one.balanced] = (outputs_of(found).argmax(1) == 1).mean()
    assert shares[True] > 2 * max(shares[False], targets.mean())
