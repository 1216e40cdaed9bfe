"""Per-FedAvg, pFedMe and FedUpdate: on a quadratic, where every step is known, and local.iterate beneath them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scripted import vector_of
from torch import nn

import sparsona
from sparsona.chance import Chance
from sparsona.data.dataset import ClientSplit, Dataset
from sparsona.errors import Diverged, InputError
from sparsona.message import Message
from sparsona.method import Fit, Method, Task
from sparsona.methods import apfl, fedala, scaffold
from sparsona.methods.apfl import APFL
from sparsona.methods.fedala import FedALA
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedavg_ft import FedUpdate
from sparsona.methods.per_fedavg import PerFedAvg
from sparsona.methods.pfedme import ClientState, PFedMe
from sparsona.methods.scaffold import Scaffold
from sparsona.methods.spfl import SPFL
from sparsona.testing import tiny_setup
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.minibatch import Minibatch, Vectors
from sparsona.training.objective import regression
from sparsona.training.runner import ModelRunner

A = 2.0
"""The curvature: with inputs 1 and targets 0 the squared loss of one weight is w^2."""


def quadratic(config: TrainConfig, layers: int = 1) -> Local:
    data = Dataset("quadratic", np.ones((8, 1), np.float32), np.zeros(8, np.float32), 0)
    runner = ModelRunner(
        nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(layers))), data, regression(), Chance(0)
    )
    rows = np.arange(8)
    task = Task(runner.layout, np.ones(1, np.float32), ("a",), 5, (1,), 0, Chance(0))
    return Local("a", 0, task, config, ClientSplit("a", rows, rows[:0], rows), runner)


def fitted(method: Method[Any, Any], config: TrainConfig, state: Any = None, w: float = 1.0) -> Fit[Any]:
    return method.fit(state, Message(weights=np.array([w], np.float32)), quadratic(config))


ONE = TrainConfig(steps=1, batch=8, lr=0.1)


def sent(fit: Fit[Any]) -> float:
    return float(fit.reply.vector("weights")[0])


@pytest.mark.parametrize("steps", [1, 4])
def test_two_steps_on_a_batch_are_the_square_of_one(steps: int) -> None:
    config = replace(ONE, steps=steps)
    fit = SPFL().fit(None, Message(weights=np.ones(1, np.float32)).stamped(_stamp(1)), quadratic(config))
    assert vector_of(fit.model)[0] == pytest.approx((1 - 0.1 * A) ** (2 * steps), rel=1e-5)
    once = SPFL(steps="one").fit(None, Message(weights=np.ones(1, np.float32)).stamped(_stamp(1)), quadratic(config))
    assert vector_of(once.model)[0] == pytest.approx((1 - 0.1 * A) ** steps, rel=1e-5)


def _stamp(round: int) -> Any:
    from sparsona.message import Stamp

    return Stamp(round)


def test_per_fedavg_first_order_and_with_the_hessian() -> None:
    first = fitted(PerFedAvg(alpha=0.2), ONE)
    assert sent(first) == pytest.approx(1 - 0.1 * A * (1 - 0.2 * A), rel=1e-5)
    hessian = fitted(PerFedAvg(alpha=0.2, order="hessian"), ONE)
    assert sent(hessian) == pytest.approx(1 - 0.1 * A * (1 - 0.2 * A) ** 2, rel=1e-5)
    assert vector_of(first.model)[0] == pytest.approx(sent(first) * (1 - 0.2 * A), rel=1e-5), (
        "used after a step of its own"
    )


def test_per_fedavg_as_the_repository_has_it() -> None:
    fit = fitted(PerFedAvg(alpha=0.2, beta=0.05, variant="repository"), ONE)
    assert sent(fit) == pytest.approx((1 - 0.2 * A) * (1 - 0.05 * A), rel=1e-5)
    assert vector_of(fit.model)[0] == sent(fit), "nothing happens before use"


def test_the_meta_gradient_is_the_derivative_of_the_adapted_loss() -> None:
    """With one batch for all, the Hessian variant is the gradient of f(w - alpha grad f(w)): checked by differences."""
    setup = tiny_setup(FedAvg())
    share = setup.federation.splits["c0"]
    smooth = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 5), nn.Tanh(), nn.Linear(5, 4))
    runner = ModelRunner(smooth, setup.federation.data, setup.objective, setup.task.chance)
    batch = Minibatch(runner, share.train, setup.config)
    w, alpha = runner.flat.read(), np.float32(0.5)

    def adapted(v: np.ndarray) -> float:
        ahead = v - alpha * batch.gradient(v)
        before = float(batch.total)
        batch.gradient(ahead)
        return (float(batch.total) - before) / len(share.train)

    outer = batch.gradient(w - alpha * batch.gradient(w))
    exact = outer - alpha * batch.curvature(w, outer)
    size = float(np.linalg.norm(exact))
    step = np.float32(1e-2) * exact / np.float32(size)
    assert size == pytest.approx((adapted(w + step) - adapted(w - step)) / 0.02, rel=0.01)


def test_pfedme_by_hand() -> None:
    method = PFedMe(lambda_=15.0, inner=3, eta=0.01, eta_p=0.02, mu=0.001)
    fit = fitted(method, replace(ONE, steps=2), ClientState(np.zeros(0, np.float32)))
    theta = w = 1.0
    for _ in range(2):
        for _ in range(3):
            theta -= 0.02 * (A * theta + 15 * (theta - w) + 0.001 * theta)
        w -= 0.01 * 15 * (w - theta)
    assert sent(fit) == pytest.approx(w, rel=1e-5)
    assert fit.state.theta[0] == pytest.approx(theta, rel=1e-5)
    local = quadratic(ONE)
    assert method.personal_model(fit.state, Message(weights=np.ones(1, np.float32)), local)[0] == fit.state.theta[0]


def test_pfedme_in_fedems_form() -> None:
    method = PFedMe(lambda_=0.5, variant="fedem")
    fit = fitted(method, ONE, ClientState(np.array([2.0], np.float32)))
    assert sent(fit) == pytest.approx(2 - 0.1 * (A * 2 + 0.5 * (2 - 1)), rel=1e-5)
    assert fit.state.theta[0] == sent(fit)


def test_pfedme_server_follows_by_beta() -> None:
    shared: dict[str, Any] = {"data": "digits", "clients": 3, "rounds": 1}
    half, whole = (sparsona.run(PFedMe(beta=b), **shared) for b in (0.5, 1.0))
    assert half.summary["digest"] != whole.summary["digest"]


def test_fedupdate_is_one_step_before_use() -> None:
    local = quadratic(ONE)
    found = FedUpdate().personal_model(None, Message(weights=np.ones(1, np.float32)), local)
    assert found[0] == pytest.approx(1 - 0.1 * A, rel=1e-5)
    two = FedUpdate(ft_steps=2).personal_model(None, Message(weights=np.ones(1, np.float32)), local)
    assert two[0] == pytest.approx((1 - 0.1 * A) ** 2, rel=1e-5)


def test_plain_steps_of_iterate_are_train() -> None:
    setup = tiny_setup(FedAvg())
    config = replace(setup.config, epochs=2, weight_decay=0.01, clip=0.5)
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    local = Local("c0", 1, setup.task, config, setup.federation.splits["c0"], runner)

    def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
        return (vectors[0] - np.float32(local.rate) * batches[0].gradient(vectors[0]),)

    runner.flops, runner.samples = 0, 0.0
    wanted = local.train(setup.task.initial)
    counted, loss = (runner.flops, runner.samples), runner.loss
    runner.flops, runner.samples = 0, 0.0
    (found,) = local.iterate((setup.task.initial,), step)
    assert np.allclose(found, wanted.weights, atol=1e-6)
    assert (runner.flops, runner.samples) == counted
    assert runner.samples == wanted.examples
    assert runner.loss == pytest.approx(loss, rel=1e-5)


def test_batchnorm_statistics_move_in_iterate() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    result = sparsona.run("per-fedavg", data="digits", model=module, clients=2, rounds=2, partition="iid")
    assert np.abs(result.models["c0"].tensors()["2.running_mean"]).max() > 1e-3


def test_batches_of_one_step_are_drawn_apart() -> None:
    local = quadratic(TrainConfig(steps=3, batch=2, lr=0.1))
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    names = [[i for i, _ in local._batches(local.config, None, n)] for n in ("train", "train/1")]

    def step(vectors: Vectors, batches: tuple[Minibatch, ...]) -> Vectors:
        assert len(batches) == 2
        seen.append((np.zeros(1), np.zeros(1)))
        return vectors

    local.iterate((np.ones(1, np.float32),), step, batches=2)
    assert len(seen) == 3
    assert any((a != b).any() for a, b in zip(*names, strict=True))


@pytest.mark.parametrize(
    ("method", "state"),
    [
        (PerFedAvg(alpha=0.2), None),
        (PerFedAvg(alpha=0.2, order="hessian"), None),
        (PerFedAvg(alpha=0.2, variant="repository"), None),
        (PFedMe(), ClientState(np.zeros(0, np.float32))),
        (Scaffold(), scaffold.ClientState(np.full(1, 0.3, np.float32))),
        (APFL(adaptive=False), apfl.ClientState(np.full(1, 3, np.float32), 0.5)),
    ],
)
def test_repeats_are_steps_on_the_same_batch(method: Method[Any, Any], state: Any) -> None:
    """All batches of the quadratic are alike, so three steps on one are a step on each of three."""

    def found(config: TrainConfig) -> tuple[dict[str, Any], Any]:
        down = Message(weights=np.ones(1, np.float32), control=np.full(1, 0.1, np.float32))
        fit = method.fit(state, down, quadratic(config))
        names = [name for name in fit.reply.parts if name != "examples"]
        return {name: float(fit.reply.vector(name)[0]) for name in names}, fit.model

    repeated, once = found(replace(ONE, repeats=3)), found(ONE)
    assert repeated == found(replace(ONE, steps=3))
    assert repeated[0]["weights"] != once[0]["weights"]


def test_fedala_has_its_own_number_of_steps_for_its_weights() -> None:
    state = fedala.ClientState(np.full(2, 2, np.float32), np.full(2, 0.5, np.float32))
    down = Message(weights=np.ones(2, np.float32))
    once, thrice = (
        FedALA(ala_epochs=2, ala_lr=0.01)
        .fit(state, down, quadratic(replace(ONE, repeats=repeats), layers=2))
        .state.weights
        for repeats in (1, 3)
    )
    assert once is not None
    assert thrice is not None
    assert np.array_equal(once, thrice)
    assert not np.array_equal(once, np.full(2, 2, np.float32))


def test_iterate_refuses_other_optimisers_and_names_divergence() -> None:
    with pytest.raises(InputError, match="plain gradient steps"):
        fitted(PerFedAvg(), replace(ONE, momentum=0.9))
    with pytest.raises(Diverged, match="client a, round 1"):
        fitted(PerFedAvg(beta=1e30), replace(ONE, steps=40))


def test_pfedmes_w_moves_at_the_recipes_rate() -> None:
    by_default = fitted(PFedMe(), ONE, ClientState(np.zeros(0, np.float32)))
    capped = fitted(PFedMe(eta=1 / 15, eta_p=1 / 30), ONE, ClientState(np.zeros(0, np.float32)))
    assert sent(by_default) == sent(capped), "0.1 is more than 1 / lambda"
    slow = replace(ONE, lr=0.02)
    assert sent(fitted(PFedMe(), slow, ClientState(np.zeros(0, np.float32)))) == sent(
        fitted(PFedMe(eta=0.02, eta_p=0.02), slow, ClientState(np.zeros(0, np.float32)))
    )


def test_pfedme_descends_also_where_the_loss_is_curved_more_than_its_spring() -> None:
    """With eta_p = 1 / lambda two inner steps would climb where the curvature A is above lambda."""
    start = np.ones(1, np.float32)  # the quadratic's minimum is at 0
    for inner in (1, 2, 3):
        method = PFedMe(lambda_=0.8 * A, inner=inner, mu=0.0)
        done = method.fit(ClientState(np.zeros(0, np.float32)), Message(weights=start), quadratic(replace(ONE, lr=1e9)))
        assert 0 < sent(done) < 1, inner


def test_per_fedavgs_inner_step_is_the_papers_and_does_not_fall_with_the_rate() -> None:
    config = replace(ONE, decay=0.5, drops=(0.1,))
    local = replace(quadratic(config), round=4)
    down = Message(weights=np.ones(1, np.float32))
    assert PerFedAvg().personal_model(None, down, local)[0] == pytest.approx(1 - 0.01 * A, rel=1e-5)
    rate = config.rate(4, 5)
    fit = PerFedAvg().fit(None, down, local)
    assert sent(fit) == pytest.approx(1 - rate * A * (1 - 0.01 * A), rel=1e-5)
    assert sent(PerFedAvg(variant="repository").fit(None, down, local)) == pytest.approx((1 - rate * A) ** 2, rel=1e-5)
