"""The batched trainer against the plain one: the same to rounding, and the same to the bit with itself."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from engine_helpers import Half, Stateful, perceptron_setup, run
from torch import nn

import sparsona
from sparsona.engines.inprocess import InProcess
from sparsona.engines.pool import Pool
from sparsona.errors import Diverged, InputError
from sparsona.federation.delivery import ClientMemory
from sparsona.federation.evaluation import Evaluation
from sparsona.federation.references import ReferenceStore
from sparsona.federation.rounds import Rounds
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Evaluator, Worker, groups
from sparsona.methods import METHODS
from sparsona.methods.fedavg import FedAvg
from sparsona.runs.records import RunLog
from sparsona.training.batched import Group, LinearStack, VmapStack, stack_of
from sparsona.training.batched.trainer import Trainer
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.objective import multilabel, regression
from sparsona.training.runner import ModelRunner, Proximal
from sparsona.wire import EncodeCache

CONFIGS = [
    TrainConfig(batch=8, lr=0.1),
    TrainConfig(batch=7, lr=0.1, weight_decay=0.05),
    TrainConfig(batch=8, lr=0.1, momentum=0.9, weight_decay=0.01, clip=0.5),
    TrainConfig(batch=8, lr=0.01, optimizer="adam", weight_decay=0.1),
    TrainConfig(batch=5, steps=7, lr=0.1),
    TrainConfig(batch=8, repeats=2, epochs=2, lr=0.05, drop_last=True),
]


class Named(nn.Module):
    """Not a chain: it adds what it skips."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(36, 9)
        self.norm = nn.LayerNorm(9)
        self.second = nn.Linear(9, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.first(x.flatten(1)))
        out: torch.Tensor = self.second(self.norm(hidden) + hidden)
        return out


def both(setup: Setup, **asked: Any) -> tuple[list[Any], list[Any]]:
    """The trainings of all clients, one by one and together."""
    plain = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)

    def work(client: str) -> Any:
        def train(runner: ModelRunner) -> Any:
            local = Local(client, 0, setup.task, setup.config, setup.federation.splits[client], runner)
            extra = {name: value(local) if callable(value) else value for name, value in asked.items()}
            return local.train(setup.task.initial, **extra)

        return train

    works = [work(client) for client in setup.task.clients]
    stack = stack_of(setup.module)
    assert not isinstance(stack, str)
    return [one(plain) for one in works], Group(plain, stack).run(works)


def agree(one: list[Any], other: list[Any], tolerance: float = 3e-6) -> None:
    for a, b in zip(one, other, strict=True):
        assert np.abs(a.weights - b.weights).max() < tolerance
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        assert a.examples == b.examples
        assert a.moments.step == b.moments.step
        assert a.moments.first == pytest.approx(b.moments.first, abs=1e-4)
        assert a.moments.second == pytest.approx(b.moments.second, abs=1e-4)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", [LinearStack, VmapStack])
def test_training_together_is_training_alone(config: TrainConfig, kind: type) -> None:
    torch.manual_seed(0)
    setup = replace(perceptron_setup(FedAvg(), module=Named() if kind is VmapStack else None), config=config)
    assert isinstance(stack_of(setup.module), kind)
    agree(*both(setup))


def test_masks_proximal_terms_importance_and_moments() -> None:
    setup = replace(perceptron_setup(FedAvg()), config=TrainConfig(batch=8, lr=0.1, momentum=0.5))
    size = setup.task.layout.size
    rng = np.random.default_rng(0)
    mask = rng.random(size) < 0.5
    one, other = both(setup, mask=lambda local: mask if local.client != "c2" else None)
    agree(one, other)
    assert not (other[0].weights != setup.task.initial)[~mask].any()
    assert (other[2].weights != setup.task.initial)[~mask].any()
    for apart in (False, True):
        towards = Proximal(setup.task.initial + 1, 0.5, apart)
        agree(*both(setup, proximal=lambda local, t=towards: t if local.client != "c1" else None))
    agree(*both(setup, importance=lambda local: np.linspace(0, 2, local.examples, dtype=np.float32)))
    earlier = both(setup)[0][0].moments
    agree(*both(setup, moments=lambda local: earlier if local.client == "c0" else None))


@pytest.mark.parametrize("config", CONFIGS)
def test_full_masks_are_no_masks(config: TrainConfig) -> None:
    setup = replace(perceptron_setup(FedAvg()), config=config)
    full = np.ones(setup.task.layout.size, np.bool_)
    for without, masked in zip(both(setup), both(setup, mask=full), strict=True):
        assert all(np.array_equal(a.weights, b.weights) for a, b in zip(without, masked, strict=True))


@pytest.mark.parametrize("objective", [regression(), multilabel()])
def test_other_objectives(objective: Any) -> None:
    setup = perceptron_setup(FedAvg())
    data = setup.federation.data
    targets = np.eye(4, dtype=np.float32)[data.targets]
    if objective.metric_name == "accuracy":
        targets[::7, 1] = np.nan
    federation = replace(setup.federation, data=replace(data, targets=targets, classes=0))
    agree(*both(replace(setup, federation=federation, objective=objective)))


def test_chains_are_recognised() -> None:
    def chain(*layers: nn.Module) -> bool:
        return isinstance(stack_of(nn.Sequential(*layers)), LinearStack)

    assert chain(nn.Flatten(), nn.Linear(4, 3, bias=False), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, 2), nn.Sigmoid())
    assert chain(nn.Linear(4, 3), nn.Identity())
    assert not chain(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2))
    shared = nn.Linear(4, 4)
    assert not chain(shared, nn.ReLU(), shared)
    from sparsona.models.logistic import logistic
    from sparsona.models.mlp import mlp

    assert isinstance(stack_of(mlp((1, 8, 8), 10)), LinearStack)
    assert isinstance(stack_of(logistic((64,), 10)), LinearStack)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "BatchNorm"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 4)), "Conv2d is not quicker"),
    ],
)
def test_what_is_not_supported_is_said(module: nn.Module, why: str) -> None:
    assert why in str(stack_of(module))


def test_frozen_weights_are_not_trained() -> None:
    module = nn.Linear(4, 3)
    module.bias.requires_grad = False
    assert "frozen" in str(stack_of(module))


def dropping() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 9), nn.ReLU(), nn.Dropout(0.3), nn.Linear(9, 4))


def test_each_client_drops_what_it_would_drop_alone() -> None:
    setup = perceptron_setup(FedAvg(), module=dropping())
    assert isinstance(stack_of(setup.module), LinearStack)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    for config in (TrainConfig(batch=8, lr=0.1, epochs=3), TrainConfig(batch=7, lr=0.1, momentum=0.9, repeats=2)):
        agree(*both(replace(setup, config=config)))
    assert torch.equal(before, torch.random.get_rng_state()), "torch's own generator is nobody's"


class Skipping(nn.Module):
    """Not a chain, and it drops: `by` a layer or a function."""

    def __init__(self, by: str) -> None:
        super().__init__()
        self.by = by
        self.layer = nn.Linear(36, 36)
        self.dropout = nn.Dropout(0.5 if by == "layer" else 0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.dropout(self.layer(x))
        out: torch.Tensor = (F.dropout(hidden, 0.5) if self.by == "function" else hidden) + x
        return out


def test_who_draws_random_numbers_and_is_no_chain_is_trained_alone() -> None:
    assert "draws random numbers" in str(stack_of(Skipping("layer")))
    assert "draws random numbers" in str(stack_of(Skipping("function")))
    assert isinstance(stack_of(Skipping("nothing")), VmapStack)


@pytest.mark.parametrize("module", [None, dropping()])
def test_who_trains_with_whom_does_not_hang_on_what_is_known(
    module: nn.Module | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluator, "WORTHWHILE", 0)
    setup = perceptron_setup(Stateful(), clients=5, module=module)
    loop = Rounds(setup, InProcess(setup), Half(), Evaluation(ft=True), RunLog({}, True))
    jobs = loop._jobs("personal", (0, 0), setup.task.clients, EncodeCache())
    fresh = [replace(job, score=True, fine_tune=True) for job in jobs]
    states = [ClientMemory.fresh(setup.method, setup.task, client) for client in setup.task.clients]
    plain = Worker(setup, ReferenceStore())
    known = [plain.run(job, state)[1].known for job, state in zip(fresh, states, strict=True)]
    assert all(known)
    some = [replace(job, known=k) if i in (0, 3) else job for i, (job, k) in enumerate(zip(fresh, known, strict=True))]
    together: list[int] = []
    train = Trainer.train

    def counted(self: Trainer, trainings: Any) -> Any:
        together.append(len(trainings))
        return train(self, trainings)

    monkeypatch.setattr(Trainer, "train", counted)
    worker = Worker(replace(setup, trainer="batched"), ReferenceStore())
    one, two = ([o.scores for _, o in worker.run_all(jobs, states)] for jobs in (fresh, some))
    assert together == [5, 5]
    assert one == two


def test_a_crash_changes_no_score(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Dropout(0.5), nn.Linear(30, 10))
    settings: dict[str, Any] = {
        "model": net, "clients": 6, "rounds": 3, "seed": 1, "trainer": "batched", "engine": "inprocess",
        "evaluation": {"ft": True, "post": "participants"}, "schedule": {"sample": 0.34},
    }  # fmt: skip
    whole = sparsona.run("local", **settings)

    def stop(report: object) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        sparsona.run("local", out=tmp_path / "run", on_round=stop, **settings)
    resumed = sparsona.run("local", out=tmp_path / "run", resume=True, **settings)
    assert resumed.history == whole.history
    assert resumed.summary["digest"] == whole.summary["digest"]


def test_every_method_runs_in_lockstep_as_it_does_alone() -> None:
    for name, kind in METHODS:
        setup = perceptron_setup(kind(), clients=3)
        setup = replace(setup, task=replace(setup.task, rounds=2))
        try:
            alone = run(InProcess(setup), setup)
        except InputError:  # a method that needs a deeper model
            continue
        together = run(InProcess(replace(setup, trainer="batched")), setup)
        for client, model in alone.models.items():
            if isinstance(model, np.ndarray):
                assert np.abs(model - together.models[client]).max() < 0.01, (
                    name
                )  # fedmd takes steps of Adam on an absolute loss
        assert [r.flops for r in alone.rounds] == [r.flops for r in together.rounds], name


def test_scores_are_the_same() -> None:
    setup = perceptron_setup(Stateful(), clients=7)
    alone, together = run(InProcess(setup), setup), run(InProcess(replace(setup, trainer="batched")), setup)
    assert [r.scores for r in alone.rounds] == [r.scores for r in together.rounds]
    assert alone.rounds[-1].scores["pre"]["mean"]


def test_the_bits_do_not_depend_on_the_engine() -> None:
    setup = replace(perceptron_setup(Stateful(), clients=7), trainer="batched")
    one, two = run(InProcess(setup), setup), run(Pool(setup, 2), setup)
    assert (one.server, one.clients, one.rounds) == (two.server, two.clients, two.rounds)


def test_divergence_names_the_client() -> None:
    setup = replace(perceptron_setup(FedAvg()), config=TrainConfig(lr=1e30, epochs=4), trainer="batched")
    with pytest.raises(Diverged, match=r"client c\d, round 1: .*lower it"):
        run(InProcess(setup), setup)


def test_after_an_error_the_group_goes_on() -> None:
    setup = perceptron_setup(Stateful("input"))
    worker = Worker(replace(setup, trainer="batched"), ReferenceStore())
    group = worker._group
    assert group is not None
    with pytest.raises(InputError):
        run(InProcess(replace(setup, trainer="batched")), setup)
    assert group.run([lambda runner: 1, lambda runner: 2]) == [1, 2]
    assert group.run([lambda runner: 3]) == [3]


def test_an_error_unwinds_the_others_and_no_grad_stays_with_its_turn() -> None:
    setup = replace(perceptron_setup(FedAvg()), trainer="batched")
    group = Worker(setup, ReferenceStore())._group
    assert group is not None
    samples = np.arange(3)
    unwound: list[str] = []

    def asks(runner: ModelRunner) -> None:
        try:
            with torch.no_grad():
                runner.scores(setup.task.initial, samples)
        finally:
            unwound.append("asked" if not torch.is_grad_enabled() else "left")

    def fails(runner: ModelRunner) -> None:
        assert torch.is_grad_enabled()
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        group.run([asks, fails])
    assert unwound == ["left"]
    assert torch.is_grad_enabled()


def test_who_is_with_whom() -> None:
    setup = replace(perceptron_setup(FedAvg()), trainer="batched")
    jobs = list(range(150))
    sizes = [len(group) for group in groups(jobs, setup)]  # type: ignore[arg-type]
    assert sizes == [16, 16, 16, 16, 16, 16, 16, 16, 6, 6, 6, 4]
    assert [len(group) for group in groups(jobs[:3], setup)] == [1, 1, 1]  # type: ignore[arg-type]
    assert [len(group) for group in groups(jobs[:2], replace(setup, trainer="plain"))] == [1, 1]  # type: ignore[arg-type]


def test_from_the_outside(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"clients": 5, "rounds": 2, "partition": "iid", "engine": "inprocess"}
    plain, batched = (sparsona.run("fedavg", trainer=trainer, **settings) for trainer in ("plain", "batched"))
    one, two = plain.models["c1"].model, batched.models["c1"].model
    assert isinstance(one, np.ndarray)
    assert isinstance(two, np.ndarray)
    assert np.abs(one - two).max() < 1e-5
    conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10))
    with caplog.at_level(logging.WARNING):
        fallen = sparsona.run("fedavg", model=conv, trainer="batched", **settings)
    assert "does not take this model (Conv2d" in caplog.text
    assert fallen.summary["digest"] == sparsona.run("fedavg", model=conv, **settings).summary["digest"]


def test_half_is_a_schedule() -> None:
    setup = perceptron_setup(FedAvg())
    assert Half().plan(0, setup.task.clients, setup.task.chance).invited == ("c0", "c2", "c4")
