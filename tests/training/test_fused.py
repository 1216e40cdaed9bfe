"""The fused trainer against the plain one: the same to rounding, and the same to the bit with itself."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from engine_helpers import Stateful, perceptron_setup, run
from torch import nn

import sparsona
from sparsona.data.dataset import Dataset
from sparsona.engines.inprocess import InProcess
from sparsona.engines.pool import Pool
from sparsona.errors import Diverged, InputError
from sparsona.federation.setup import Setup
from sparsona.methods import METHODS
from sparsona.methods.fedavg import FedAvg
from sparsona.training.config import TrainConfig
from sparsona.training.fused import MOST, TrainerName, choose_trainer, unfit
from sparsona.training.job import Trained
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors
from sparsona.training.objective import classification, multilabel, regression
from sparsona.training.runner import ModelRunner

CONFIGS = [
    TrainConfig(batch=8, lr=0.1),
    TrainConfig(batch=7, lr=0.1, weight_decay=0.05),
    TrainConfig(batch=8, lr=0.1, momentum=0.9, weight_decay=0.01, clip=0.5),
    TrainConfig(batch=8, lr=0.01, optimizer="adam", weight_decay=0.1),
    TrainConfig(batch=5, steps=7, lr=0.1),
    TrainConfig(batch=8, repeats=2, epochs=2, lr=0.05, drop_last=True),
]


def nets() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "relu": nn.Sequential(nn.Flatten(), nn.Linear(36, 9), nn.ReLU(), nn.Linear(9, 4)),
        "three": nn.Sequential(
            nn.Flatten(), nn.Linear(36, 9, bias=False), nn.Tanh(), nn.Linear(9, 7), nn.Sigmoid(), nn.Linear(7, 4)
        ),
        "one": nn.Sequential(nn.Flatten(), nn.Linear(36, 4)),
    }


def trained(setup: Setup, trainer: TrainerName, **asked: Any) -> list[Trained]:
    """The trainings of all clients."""
    data, chance = setup.federation.data, setup.task.chance
    runner = ModelRunner(setup.module, data, setup.objective, chance, trainer=trainer)
    found = []
    for client in setup.task.clients:
        local = Local(client, 0, setup.task, setup.config, setup.federation.splits[client], runner)
        extra = {name: value(local) if callable(value) else value for name, value in asked.items()}
        found.append(local.train(setup.task.initial, **extra))
    return found


def agree(setup: Setup, tolerance: float = 3e-6, **asked: Any) -> list[Trained]:
    """Train with both trainers and compare; returns what the fused one gives."""
    one, other = trained(setup, "plain", **asked), trained(setup, "fused", **asked)
    for a, b in zip(one, other, strict=True):
        assert np.abs(a.weights - b.weights).max() < tolerance
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        assert a.examples == b.examples
        assert a.moments.step == b.moments.step
        assert a.moments.first == pytest.approx(b.moments.first, abs=1e-4)
        assert a.moments.second == pytest.approx(b.moments.second, abs=1e-4)
    return other


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("net", ["relu", "three", "one"])
def test_both_trainers_take_the_same_steps(config: TrainConfig, net: str) -> None:
    setup = replace(perceptron_setup(FedAvg(), module=nets()[net]), config=config)
    found = agree(setup)
    assert all(np.abs(one.weights - setup.task.initial).max() > 1e-3 for one in found)


def test_importance_and_moments() -> None:
    setup = replace(perceptron_setup(FedAvg()), config=TrainConfig(batch=8, lr=0.1, momentum=0.5))
    agree(setup, importance=lambda local: np.linspace(0, 2, local.examples, dtype=np.float32))
    plain = replace(setup, config=TrainConfig(batch=8, lr=0.1))
    agree(plain, importance=lambda local: np.linspace(0, 2, local.examples, dtype=np.float32))
    agree(setup, moments=trained(setup, "plain")[0].moments)


@pytest.mark.parametrize("config", CONFIGS)
def test_full_masks_are_no_masks(config: TrainConfig) -> None:
    setup = replace(perceptron_setup(FedAvg()), config=config)
    full = np.ones(setup.task.layout.size, np.bool_)
    without, masked = trained(setup, "fused"), trained(setup, "fused", mask=full)
    assert all(np.array_equal(a.weights, b.weights) for a, b in zip(without, masked, strict=True))


@pytest.mark.parametrize("objective", [regression(), multilabel(), classification()])
def test_other_objectives(objective: Any) -> None:
    setup = perceptron_setup(FedAvg())
    data = setup.federation.data
    targets = np.eye(4, dtype=np.float32)[data.targets]
    if objective.metric_name == "accuracy" and objective.loss is not classification().loss:
        targets[::7, 1] = np.nan
    if objective.loss is classification().loss:
        targets = np.where(np.arange(len(data.targets)) % 5 == 0, -100, data.targets)  # torch leaves these out
    federation = replace(setup.federation, data=replace(data, targets=targets, classes=0))
    agree(replace(setup, federation=federation, objective=objective))


def test_missing_values_are_marked() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 5)).astype(np.float32)
    inputs[rng.random(inputs.shape) < 0.2] = np.nan
    data = Dataset("holes", inputs, rng.integers(0, 3, 60), 3, mean=(0.5,) * 5, std=(2.0,) * 5)
    settings: dict[str, Any] = {"model": "mlp", "partition": "iid", "clients": 3, "rounds": 2, "engine": "inprocess"}
    plain, fused = (sparsona.run("fedavg", data=data, trainer=trainer, **settings) for trainer in ("plain", "fused"))
    one, other = plain.models["c0"].model, fused.models["c0"].model
    assert isinstance(one, np.ndarray)
    assert isinstance(other, np.ndarray)
    assert len(one) == 10 * 50 + 50 + 150 + 3
    assert np.abs(one - other).max() < 1e-5


def test_every_method_gives_the_same_with_both_trainers() -> None:
    for name, kind in METHODS:
        setup = perceptron_setup(kind(), clients=3)
        setup = replace(setup, task=replace(setup.task, rounds=2))
        try:
            plain = run(InProcess(setup), setup)
        except InputError:  # a method that needs a deeper model
            continue
        fused = run(InProcess(replace(setup, trainer="fused")), setup)
        for client, model in plain.models.items():
            if isinstance(model, np.ndarray):  # fedmd takes steps of Adam on an absolute loss
                assert np.abs(model - fused.models[client]).max() < 0.01, name
        assert [r.flops for r in plain.rounds] == [r.flops for r in fused.rounds], name


def test_scores_are_the_same() -> None:
    setup = perceptron_setup(Stateful(), clients=7)
    plain, fused = run(InProcess(setup), setup), run(InProcess(replace(setup, trainer="fused")), setup)
    assert [r.scores for r in plain.rounds] == [r.scores for r in fused.rounds]
    assert plain.rounds[-1].scores["pre"]["mean"]


def test_the_bits_do_not_depend_on_the_engine() -> None:
    setup = replace(perceptron_setup(Stateful(), clients=7), trainer="fused")
    one, two = run(InProcess(setup), setup), run(Pool(setup, 2), setup)
    assert (one.server, one.clients, one.rounds) == (two.server, two.clients, two.rounds)


def test_divergence_names_the_client() -> None:
    setup = replace(perceptron_setup(FedAvg()), config=TrainConfig(lr=1e30, epochs=4), trainer="fused")
    with pytest.raises(Diverged, match=r"client c\d, round 1: .*lower it"):
        run(InProcess(setup), setup)


def test_the_choice_follows_from_the_model_and_the_inputs() -> None:
    numbers, tokens = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.int64)
    small, large = nn.Sequential(nn.Linear(4, 2)), nn.Sequential(nn.Linear(4, MOST))
    assert choose_trainer("auto", small, numbers, "cpu") == "fused"
    assert choose_trainer("auto", small, numbers.astype(np.uint8), "cpu") == "fused"
    assert choose_trainer("plain", small, numbers, "cpu") == "plain"
    assert choose_trainer("auto", small, tokens, "cpu") == "plain"
    assert choose_trainer("auto", small, numbers, "cuda") == "plain"
    assert choose_trainer("auto", large, numbers, "cpu") == "plain"
    assert "torch is faster" in unfit(large, np.dtype("float32"))


def test_who_asks_for_it_in_vain_is_told(caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {"clients": 5, "rounds": 1, "partition": "iid", "engine": "inprocess"}
    conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10))
    with caplog.at_level(logging.WARNING):
        asked = sparsona.run("fedavg", model=conv, trainer="fused", **settings)
    assert "does not take this model (it has a layer of kind conv)" in caplog.text
    caplog.clear()
    chosen = sparsona.run("fedavg", model=conv, **settings)
    assert caplog.text == ""
    assert asked.summary["digest"] == chosen.summary["digest"]


@pytest.mark.parametrize("change", [{}, {"weight_decay": 0.05}, {"clip": 0.02}, {"weight_decay": 0.1, "clip": 0.05}])
@pytest.mark.parametrize("net", ["relu", "three", "one"])
def test_own_steps_of_a_method_see_the_same_gradients(net: str, change: dict[str, Any]) -> None:
    setup = perceptron_setup(FedAvg(), module=nets()[net])
    config = TrainConfig(batch=8, lr=0.1, **change)
    seen: dict[TrainerName, list[np.ndarray[Any, Any]]] = {}
    losses = []
    trainers: tuple[TrainerName, ...] = ("plain", "fused")
    for trainer in trainers:
        runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance, trainer=trainer)
        local = Local("c1", 0, setup.task, config, setup.federation.splits["c1"], runner)
        mine = seen.setdefault(trainer, [])

        def step(vectors: Vectors, batches: tuple[Minibatch, ...], mine: list[Any] = mine) -> Vectors:
            (w,) = vectors
            mine.append(batches[0].gradient(w))
            return (w - np.float32(0.1) * mine[-1],)

        mine.extend(local.iterate((setup.task.initial,), step))
        losses.append(runner.loss)
        assert runner.flops > 0
    assert len(seen["plain"]) == len(seen["fused"]) > 2
    for one, other in zip(seen["plain"], seen["fused"], strict=True):
        assert one == pytest.approx(other, abs=2e-5)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
