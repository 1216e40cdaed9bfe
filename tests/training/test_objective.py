from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import sparsona
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
