"""The log prior: what training adds to the outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import nn

import sparsona
from sparsona.api import execute
from sparsona.chance import Chance
from sparsona.data.dataset import Dataset
from sparsona.errors import InputError
from sparsona.metrics import METRICS
from sparsona.prepare import prepare
from sparsona.report.words import no_better_than_constant
from sparsona.training.objective import (
    Objective,
    balanced_weights,
    classification,
    constant_answers,
    log_prior,
    multilabel,
    regression,
)
from sparsona.training.runner import ModelRunner


def test_losses_are_per_example() -> None:
    outputs = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    assert classification().loss(outputs, torch.tensor([0, 0])).shape == (2,)
    assert regression().loss(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0])).tolist() == [1.0, 4.0]


def test_a_missing_label_neither_trains_nor_counts() -> None:
    task = multilabel()
    outputs = torch.tensor([[5.0, -5.0], [5.0, 5.0]], requires_grad=True)
    targets = torch.tensor([[1.0, float("nan")], [float("nan"), float("nan")]])
    losses = task.loss(outputs, targets)
    torch.autograd.backward(losses.sum())
    assert outputs.grad is not None
    assert outputs.grad[0, 1] == outputs.grad[1, 0] == outputs.grad[1, 1] == 0
    assert outputs.grad[0, 0] != 0
    assert task.metric(np.array([[1.0, 0.0], [1.0, 1.0]]), targets.numpy()) == 1.0
    assert np.isnan(task.metric(np.array([[1.0, 1.0]]), np.array([[np.nan, np.nan]])))


def wards(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    out = {}
    for name, slope in (("north", 1.0), ("south", -1.0)):
        x = rng.normal(size=(80, 3)).astype(np.float32)
        out[name] = (x, (slope * x[:, 0] + 0.1 * rng.normal(size=80)).astype(np.float32))
    return out


def test_regression_reports_its_own_metric_and_worst_is_largest() -> None:
    data = wards(np.random.default_rng(0))
    result = sparsona.run("local", data=data, model=nn.Linear(3, 1), rounds=15, training={"lr": 0.05})
    assert result.summary["metric"] == "mae"
    assert "accuracy" not in result.summary
    scores = result.summary["mae"]["pre"]
    assert scores["mean"] < 0.3
    assert scores["worst"] >= scores["mean"]
    shared = sparsona.run("fedavg", data=data, model=nn.Linear(3, 1), rounds=15, training={"lr": 0.05})
    assert shared.summary["mae"]["pre"]["mean"] > 2 * scores["mean"], "opposite slopes cannot share a model"


def test_multilabel_with_missing_labels_runs() -> None:
    rng = np.random.default_rng(1)
    data = {}
    for name in "ab":
        x = rng.normal(size=(200, 4)).astype(np.float32)
        y = (x[:, :2] > 0).astype(np.float32)
        y[rng.random(y.shape) < 0.3] = np.nan
        data[name] = (x, y)
    result = sparsona.run("fedavg", data=data, model=nn.Linear(4, 2), rounds=20, training={"lr": 0.5})
    assert result.summary["accuracy"]["pre"]["mean"] > 0.85


def test_an_own_objective() -> None:
    def median_error(predictions: np.ndarray, targets: np.ndarray) -> float:
        return float(np.median(np.abs(predictions[:, 0] - targets)))

    own = Objective(
        loss=lambda outputs, targets: (outputs[:, 0] - targets).abs(),
        predict=lambda outputs: outputs,
        metric=median_error,
        metric_name="median error",
        higher_is_better=False,
    )
    result = sparsona.run("local", data=wards(np.random.default_rng(2)), model=nn.Linear(3, 1), objective=own, rounds=5)
    assert set(result.summary["median error"]) == {"pre", "post"}
    assert result.summary["median error"]["pre"]["mean"] == pytest.approx(
        np.mean([scores["pre"] for scores in result.scores.values()])
    )


@pytest.mark.parametrize("offset", [1e6, 1e9])
def test_a_target_far_from_zero_is_learnt_as_well_as_one_near_it(offset: float) -> None:
    rng = np.random.default_rng(4)
    data = {name: (x := rng.normal(size=(120, 2)), 10 * x[:, 0]) for name in "ab"}
    near, far = (
        sparsona.run("local", data={k: (x, y + add) for k, (x, y) in data.items()}, task="regression", rounds=3)
        for add in (0.0, offset)
    )
    assert far.summary["mae"]["post"]["mean"] == pytest.approx(near.summary["mae"]["post"]["mean"], rel=1e-3)
    assert far.models["a"].predict(data["a"][0])[:, 0] == pytest.approx(
        near.models["a"].predict(data["a"][0])[:, 0] + offset, abs=0.1
    )


def clinics(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    out = {}
    for name in ("east", "west"):
        x = rng.normal(size=(150, 4)).astype(np.float32)
        out[name] = (x, np.where(x[:, 0] + rng.normal(size=150) > 0.5, "ill", "well"))
    return out


def test_the_metrics_are_measured_together_and_the_first_decides() -> None:
    data = clinics(np.random.default_rng(5))
    plain = sparsona.run("fedavg", data=data, rounds=3)
    result = sparsona.run("fedavg", data=data, rounds=3, metrics=["auc", "log-loss", "accuracy"])
    summary = result.summary
    assert summary["digest"] == plain.summary["digest"]
    assert summary["metrics"] == ["auc", "log-loss", "accuracy"]
    assert summary["metric"] == "auc"
    assert summary["accuracy"]["pre"] == pytest.approx(plain.summary["accuracy"]["pre"])
    assert summary["log-loss"]["pre"]["worst"] >= summary["log-loss"]["pre"]["mean"]
    means = [report.validation["pre"] or 0.0 for report in result.history]
    assert summary["picked"]["pre"]["round"] == 1 + means.index(max(means))
    east = result.clients[0]
    assert east.others["log-loss"]["pre"].value > 0


def test_scores_are_those_of_scikit_learn_on_the_models_probabilities() -> None:
    data = clinics(np.random.default_rng(6))
    given = {"method": "local", "rounds": 3, "evaluation": {"metrics": ["auc", "log-loss", "brier", "f1"]}}
    prepared = prepare(given, data=data)
    result = execute(prepared)
    for client in result.clients:
        rows = prepared.setup.federation.splits[client.client].test
        model = result.models[client.client]
        inputs = np.concatenate([x for x, _ in data.values()])[rows]
        ill = np.concatenate([y for _, y in data.values()])[rows] == "ill"
        yes = model.probabilities(inputs)[:, 1]
        expected = {
            "log-loss": sk.log_loss(~ill, yes),
            "brier": sk.brier_score_loss(~ill, yes),
            "f1": sk.f1_score(~ill, model.predict(inputs) == "well"),
        }
        assert client.scores["pre"].value == pytest.approx(sk.roc_auc_score(~ill, yes), abs=1e-6)
        found = {metric: points["pre"].value for metric, points in client.others.items()}
        assert found == pytest.approx(expected, abs=1e-6)


def test_the_positive_class_can_be_named() -> None:
    data = clinics(np.random.default_rng(7))
    scores = {
        positive: sparsona.run(
            "fedavg", data=data, rounds=2, lr=0.1, metrics="sensitivity,specificity", evaluation={"positive": positive}
        ).summary
        for positive in ("ill", "well")
    }
    assert scores["ill"]["sensitivity"]["pre"] == scores["well"]["specificity"]["pre"]


def test_a_client_of_one_class_has_no_auc_and_is_named() -> None:
    data = clinics(np.random.default_rng(8))
    data["south"] = (data["east"][0], np.full(150, "ill"))
    summary = sparsona.run("fedavg", data=data, rounds=2, metrics=["auc"]).summary
    assert summary["undefined"]["auc"]["clients"] == ["south"]
    assert summary["auc"]["pre"]["mean"] > 0


def test_every_label_has_its_own_score() -> None:
    rng = np.random.default_rng(9)
    data = {}
    for name in "ab":
        x = rng.normal(size=(200, 4)).astype(np.float32)
        data[name] = (x, (x[:, :2] > 0).astype(np.float32))
    summary = sparsona.run("fedavg", data=data, task="multilabel", rounds=2, metrics=["auc"]).summary
    mean, *labels = (summary[name]["pre"]["mean"] for name in summary["metrics"])
    assert len(labels) == 2
    assert mean == pytest.approx(np.mean(labels))


@pytest.mark.parametrize(
    ("metrics", "told"),
    [(["acu"], "did you mean 'auc'"), (["mae"], "not for classification"), (["r2", "auc"], "not for classification")],
)
def test_metrics_that_do_not_fit_are_refused(metrics: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        sparsona.run("fedavg", data=clinics(np.random.default_rng(0)), rounds=1, metrics=metrics)


def test_an_own_objective_has_its_own_metric() -> None:
    own = Objective(lambda o, t: (o[:, 0] - t).abs(), lambda o: o, lambda p, t: 0.0, "own")
    with pytest.raises(InputError, match="leave metrics out"):
        sparsona.run(
            "local", data=wards(np.random.default_rng(2)), model=nn.Linear(3, 1), objective=own, metrics=["mae"]
        )


def test_a_threshold_of_validation_rows_is_carried_by_the_model(tmp_path: Path) -> None:
    data = clinics(np.random.default_rng(10))
    evaluation = {"positive": "ill", "threshold": "sensitivity=0.95", "metrics": ["sensitivity", "accuracy"]}
    plain = sparsona.run("fedavg", data=data, rounds=3, lr=0.1, metrics=["sensitivity"], evaluation={"positive": "ill"})
    result = sparsona.run("fedavg", data=data, rounds=3, lr=0.1, evaluation=evaluation, out=tmp_path / "run")
    assert result.summary["digest"] == plain.summary["digest"]
    assert result.summary["sensitivity"]["pre"]["mean"] > plain.summary["sensitivity"]["pre"]["mean"]
    model = sparsona.load(tmp_path / "run").models["east"]
    assert model.card.threshold is not None
    inputs = data["east"][0]
    ill = model.probabilities(inputs)[:, 0] >= model.card.threshold
    assert (model.predict(inputs) == np.where(ill, "ill", "well")).all()


def test_a_threshold_is_for_two_classes() -> None:
    with pytest.raises(InputError, match="two classes"):
        sparsona.run("fedavg", data="digits", rounds=1, evaluation={"threshold": "youden"})


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


RNG = np.random.default_rng(5)
DATA = Dataset("toy", RNG.normal(size=(12, 3)).astype(np.float32), np.arange(12) % 4, 4)
PRIOR = log_prior(np.array([0, 0, 0, 1, 3]), 4)


def runner(trainer: Any) -> ModelRunner:
    return ModelRunner(nn.Sequential(nn.Linear(3, 4)), DATA, classification(), Chance(0), "cpu", trainer)


@pytest.mark.parametrize("trainer", ["plain", "fused"])
def test_the_gradient_is_that_of_a_net_whose_bias_holds_the_prior(trainer: str) -> None:
    own = runner(trainer)
    weights = RNG.normal(size=16).astype(np.float32)
    held = weights.copy()
    held[-4:] += PRIOR
    with own.adding(PRIOR):
        found, losses = own.gradient(weights, np.arange(12)), own.losses(weights, np.arange(12))
    np.testing.assert_allclose(found, own.gradient(held, np.arange(12)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(losses, own.losses(held, np.arange(12)), rtol=1e-4, atol=1e-6)
    assert own.prior is None, "it ends with the block"


def test_it_needs_classes_and_an_output_bias() -> None:
    bare = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))
    with pytest.raises(InputError, match="ends in a bias with one number per class"):
        sparsona.run("fedavg", data="digits", rounds=1, model=bare, training={"logit_prior": True})


def rare(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Two clients whose positive class has about one row in ten."""
    out = {}
    for name in ("east", "west"):
        x = rng.normal(size=(400, 4)).astype(np.float32)
        out[name] = (x, (x[:, 0] + rng.normal(size=400) > 1.8).astype(np.int64))
    return out


def test_balanced_classes_find_more_of_the_rare_one_in_every_trainer() -> None:
    data = rare(np.random.default_rng(0))
    found = {
        (trainer, weights): sparsona.run(
            "fedavg", data=data, rounds=6, trainer=trainer, metrics="sensitivity", training={"class_weights": weights}
        )
        for trainer in ("plain", "fused")
        for weights in ("none", "balanced")
    }
    for trainer in ("plain", "fused"):
        plain, balanced = (
            found[trainer, weights].summary["sensitivity"]["pre"]["mean"] for weights in ("none", "balanced")
        )
        assert balanced > plain + 0.2
    one, other = (found[trainer, "balanced"].models["east"].model for trainer in ("plain", "fused"))
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=1e-4)


def test_steps_of_a_methods_own_are_weighted_too() -> None:
    data = rare(np.random.default_rng(1))
    plain, balanced = (
        sparsona.run("per-fedavg", data=data, rounds=3, metrics="log-loss", training={"class_weights": weights}).summary
        for weights in ("none", "balanced")
    )
    assert plain["digest"] != balanced["digest"]


def test_classes_are_weighted_by_their_shares() -> None:
    weights = balanced_weights(np.repeat([0, 1], [90, 10]), 2)
    assert weights[1] / weights[0] == pytest.approx(9)
    assert (weights * [90, 10]).sum() == pytest.approx(100)
    held = balanced_weights(np.repeat([0, 1], [90, 10]), 2, least=30)
    assert held[1] / held[0] == pytest.approx(3)


def test_numbers_have_no_classes_to_weigh() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(InputError, match="class_weights"):
        sparsona.run("local", data={"a": (x, x[:, 0])}, task="regression", training={"class_weights": "balanced"})
