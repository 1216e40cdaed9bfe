from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import nn

import sparsona
from sparsona.api import execute
from sparsona.errors import InputError
from sparsona.prepare import prepare
from sparsona.training.objective import Objective, classification, multilabel, regression


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
