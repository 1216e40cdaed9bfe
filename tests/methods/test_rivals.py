"""APFL, SCAFFOLD, FedBN, FedALA, top-k and EF21 in small numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scripted import Batch, Scripted, answered, floats, task
from torch import nn

import sparsona
from sparsona.experiment import make_method
from sparsona.federation.delivery import BUFFERS
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import assemble
from sparsona.message import Message, Sparse, Vector
from sparsona.methods import apfl, compressed, ef21, fedala, scaffold
from sparsona.methods.apfl import APFL, OutputMixture
from sparsona.methods.compressed import TopK
from sparsona.methods.ef21 import EF21
from sparsona.methods.fedala import FedALA
from sparsona.methods.scaffold import Scaffold
from sparsona.methods.split import ClientState as Split
from sparsona.methods.split import FedBN
from sparsona.ops.parts import last_layers
from sparsona.testing import tiny_setup
from sparsona.testing.privacy import Tap
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner
from sparsona.training.vector import FlatModule

LINE = task(nn.Linear(1, 1))


def towards(*target: float) -> object:
    """The gradient of half the squared distance from a point."""
    return lambda weights: weights - floats(*target)


def test_apfl_trains_its_own_model_through_the_mixture() -> None:
    method = APFL(alpha=0.25, adaptive=False)
    local = Scripted(LINE, floats(0, 0), slope=towards(4, 0))  # type: ignore[arg-type]
    state = apfl.ClientState(floats(2, 0), 0.25)
    fit = method.fit(state, Message(weights=floats(0, 0)), local)  # type: ignore[arg-type]
    # w: 0 - 0.5 (0 - 4) = 2; v: 2 - 0.5 * 0.25 (0.25 * 2 - 4)
    assert fit.reply.vector("weights").tolist() == [2, 0]
    assert fit.state.own.tolist() == [2.4375, 0]
    assert fit.model == pytest.approx([0.25 * 2.4375 + 0.75 * 2, 0])


def test_apfl_moves_its_share_along_the_gradient_within_bounds() -> None:
    local = Scripted(LINE, floats(0, 0), slope=towards(1, 0))  # type: ignore[arg-type]
    fit = APFL().fit(apfl.ClientState(floats(1, 0), 0.5), Message(weights=floats(0, 0)), local)  # type: ignore[arg-type]
    # 0.5 - 0.5 <(1, 0), (0.5 - 1, 0)> = 0.75
    assert fit.state.alpha == 0.75
    far = APFL().fit(apfl.ClientState(floats(9, 0), 0.5), Message(weights=floats(0, 0)), local)  # type: ignore[arg-type]
    assert far.state.alpha == 0


@pytest.mark.parametrize("alpha", [0.25, 1.0])
def test_apfl_mixes_outputs_as_its_authors_code(alpha: float) -> None:
    """The step and the model, against plain torch; all samples are in one batch."""
    setup = tiny_setup(APFL())
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    config = TrainConfig(batch=10**6, lr=0.2)
    local = Local("c0", 0, setup.task, config, setup.federation.splits["c0"], runner)
    rng = np.random.default_rng(0)
    w, v = (rng.normal(0, 0.4, setup.task.layout.size).astype(np.float32) for _ in range(2))
    inputs, targets = runner.batch(local.split.train)
    flat, share = runner.flat, torch.tensor(alpha, requires_grad=True)
    flat.load(w)
    fixed = flat.module(inputs).detach()
    flat.load(v)
    flat.gradient.zero_()
    loss = F.cross_entropy(share * flat.module(inputs) + (1 - share) * fixed, targets)
    torch.autograd.backward(loss)
    slope = flat.gradient.clone().numpy()
    assert share.grad is not None
    fixed_share, moving = APFL(mix="outputs", adaptive=False), APFL(mix="outputs")
    fit = fixed_share.fit(apfl.ClientState(v, alpha), Message(weights=w), local)
    np.testing.assert_allclose(fit.state.own, v - 0.2 * slope, atol=1e-5)
    moved = moving.fit(apfl.ClientState(v, alpha), Message(weights=w), local).state.alpha
    assert moved == pytest.approx(np.clip(alpha - 0.2 * float(share.grad), 0, 1), abs=1e-5)
    model = fixed_share.personal_model(apfl.ClientState(v, alpha), Message(weights=w), local)
    assert isinstance(model, OutputMixture)
    outputs = model.predict(runner.forward, inputs).detach()
    parts = [runner.forward(one, inputs).detach() for one in (v, w)]
    np.testing.assert_allclose(outputs, alpha * parts[0] + (1 - alpha) * parts[1], atol=1e-5)


def test_apfl_with_mixed_outputs_runs_and_exports(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"clients": 4, "partition": "iid", "rounds": 8, "out": tmp_path / "run"}
    result = sparsona.run("apfl", data="digits", options={"mix": "outputs"}, evaluation={"every": 0}, **settings)
    assert result.summary["accuracy"]["pre"]["mean"] > 0.6
    assert isinstance(result.models["c0"].model, OutputMixture)


def test_scaffold_corrects_each_step_and_learns_its_drift() -> None:
    method = Scaffold()
    local = Scripted(LINE, floats(0, 0), slope=lambda w: floats(1, 2), steps=2)
    down = Message(weights=floats(10, 10), control=floats(4, 0))
    fit = method.fit(scaffold.ClientState(floats(1, 0)), down, local)  # type: ignore[arg-type]
    # two steps of 0.5 (1 + 4 - 1, 2): 10 - 4, 10 - 2
    assert fit.reply.vector("weights").tolist() == [6, 8]
    # c_i = c_i - c + (x - y) / (K rate) = 1 - 4 + 4, 2: the mean gradient
    assert fit.state.control.tolist() == [1, 2]
    assert fit.reply.vector("control").tolist() == [0, 2]
    assert fit.lost.control.tolist() == [1, 0]
    server = scaffold.ServerState(floats(10, 10), floats(4, 0))
    after = answered(method, server, [("a", fit.reply)], LINE)
    assert after.weights.tolist() == [6, 8]
    assert after.control.tolist() == [4, 1], "one of two clients has answered"


def test_fedbn_keeps_scales_and_shifts() -> None:
    where = task(nn.Linear(1, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    method = FedBN()
    server, state = method.start_server(where), method.start_client(where, "a")
    assert (len(server.weights), len(state.kept)) == (4 + 3, 4)
    local = Scripted(where, np.arange(11, dtype=np.float32))
    fit = method.fit(state, Message(shared=server.weights), local)  # type: ignore[arg-type]
    assert fit.reply.vector("shared").tolist() == [0, 1, 2, 3, 8, 9, 10]
    assert fit.state.kept.tolist() == [4, 5, 6, 7]
    assert isinstance(fit.state, Split)


def test_fedbn_leaves_statistics_with_their_clients() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    result = sparsona.run("fedbn", data="digits", model=module, clients=3, rounds=2, partition="iid")
    one, other = (result.models[client].tensors() for client in ("c0", "c1"))
    for name in ("2.running_mean", "2.weight"):
        assert not np.array_equal(one[name], other[name])
    assert np.array_equal(one["1.weight"], other["1.weight"])


@pytest.mark.parametrize("name", ["fedmd", "ditto", "apfl", "l2gd", "fedbn"])
def test_statistics_of_a_clients_own_model_do_not_travel(name: str) -> None:
    setup = tiny_setup(make_method(name, {}), rounds=2)
    with setup.task.chance.torch("initial weights"):
        module = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))
    flat = FlatModule(module)
    setup = replace(setup, module=module, task=replace(setup.task, layout=flat.layout, initial=flat.read()))
    engine = Tap(setup)
    rounds = assemble(setup, engine, evaluation=LAST_ROUND)
    rounds.run()
    assert len(engine.sent) >= 6
    assert not any(BUFFERS in message for _, message in engine.sent)
    one, other = (outcome.buffers for outcome in rounds.finish("personal", setup.task.clients[:2]))
    assert one is not None
    assert other is not None
    assert not np.array_equal(one, other)


def test_fedala_learns_where_to_take_the_global_model() -> None:
    where = task(nn.Linear(1, 1), nn.Linear(1, 1))
    method = FedALA(ala_most=1, ala_lr=0.25)

    def slope(weights: Vector) -> Vector:
        return floats(0, 0, 1, -1)

    local = Scripted(where, floats(0, 0, 0, 0), slope=slope)
    down = Message(weights=floats(2, 2, 2, 2))
    fit = method.fit(fedala.ClientState(floats(0, 0, 0, 0)), down, local)  # type: ignore[arg-type]
    # W = 1 - 0.25 * gradient * (2 - 0) in the last layer: 0.5, and 1.5 is cut to 1; the first layer is the global one
    assert fit.state.weights is not None
    assert fit.state.weights.tolist() == [1, 1, 0.5, 1]
    assert fit.reply.vector("weights").tolist() == [2, 2, 1, 2]
    new = method.fit(method.start_client(where, "a"), down, local)  # type: ignore[arg-type]
    assert new.reply.vector("weights").tolist() == [2, 2, 2, 2]
    assert new.state.weights is None


@dataclass
class Losses:
    """The losses of the epochs of W, one batch each, and how many epochs were asked for."""

    given: Iterator[float]
    asked: int = 0

    def of(self, local: Scripted) -> Scripted:
        found = self

        @dataclass(frozen=True)
        class Watched(Scripted):
            def iterate(self, start: Any, step: Any, config: TrainConfig | None = None, **how: Any) -> Any:
                found.asked += 1
                return step(start, (Batch(self.slope, next(found.given)),))

        return Watched(local.task, local.change, max_epochs=local.max_epochs)


@pytest.mark.parametrize(
    ("losses", "allowed", "epochs"),
    [
        (repeat(1.0), None, 11),
        (chain([9.0, 9.0, 9.0], repeat(1.0)), None, 13),
        (chain([1.35] * 10, repeat(1.0)), None, 20),
        (cycle([0.0, 1.0]), None, 100),
        (cycle([0.0, 1.0]), 20, 20),
    ],
)
def test_fedala_learns_its_weights_at_first_until_the_loss_settles(
    losses: Iterator[float], allowed: int | None, epochs: int
) -> None:
    """Of ten losses in which j differ from the others by d, the standard deviation is d sqrt(j (10 - j)) / 10."""
    where = task(nn.Linear(1, 1), nn.Linear(1, 1))
    watched = Losses(losses)
    local = watched.of(Scripted(where, floats(0, 0, 0, 0), max_epochs=allowed))
    down = Message(weights=floats(2, 2, 2, 2))
    fit = FedALA().fit(fedala.ClientState(floats(0, 0, 0, 0)), down, local)  # type: ignore[arg-type]
    assert watched.asked == epochs
    FedALA().fit(fit.state, down, local)  # type: ignore[arg-type]
    assert watched.asked == epochs + 1
    FedALA(ala_epochs=3).fit(fit.state, down, local)  # type: ignore[arg-type]
    assert watched.asked == epochs + 4


def test_fedala_is_the_authors_loop_where_a_batch_holds_all_samples() -> None:
    setup = tiny_setup(FedALA())
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    config = TrainConfig(batch=10**6, lr=0.1, weight_decay=0.3, clip=0.001)
    local = Local("c0", 1, setup.task, config, setup.federation.splits["c0"], runner)
    rng = np.random.default_rng(0)
    old, shared = (rng.normal(0, 0.5, setup.task.layout.size).astype(np.float32) for _ in range(2))
    method = FedALA(ala_share=1.0, ala_settled=0.01)
    found = method.fit(fedala.ClientState(old), Message(weights=shared), local).state.weights

    inputs, targets = runner.batch(local.split.train)
    flat = runner.flat
    places = last_layers(flat.layout, 1)
    weights, losses = torch.ones(len(old)), list[float]()
    p, g = torch.from_numpy(np.where(places, old, shared)), torch.from_numpy(shared)
    while len(losses) <= 10 or np.std(losses[-10:]) >= 0.01:
        flat.load((p + (g - p) * weights).numpy())
        flat.gradient.zero_()
        loss = F.cross_entropy(flat.module(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        weights = torch.clamp(weights - flat.gradient * (g - p), 0, 1)
        losses.append(float(loss.detach()))
    assert found is not None
    assert 0 < found[places].mean() < 1
    np.testing.assert_allclose(found, weights.numpy(), atol=1e-4)


WIDE = task(nn.Linear(4, 1))


def test_top_k_sends_the_largest_and_keeps_the_rest() -> None:
    method = TopK(density=0.25)
    local = Scripted(WIDE, floats(1, -5, 2, 0, 3))
    fit = method.fit(compressed.ClientState(floats(0, 0, 9, 0, 0)), Message(weights=np.zeros(5, np.float32)), local)  # type: ignore[arg-type]
    assert fit.reply.sparse("update").dense().tolist() == [0, 0, 11, 0, 3]
    assert fit.state.residual.tolist() == [1, -5, 0, 0, 0]
    assert fit.lost.residual.tolist() == [1, -5, 11, 0, 3]
    other = Message(update=Sparse(5, np.array([2]), floats(1)), examples=60)
    after = answered(method, method.start_server(WIDE), [("a", fit.reply), ("b", other)], WIDE)
    assert after.weights.tolist() == [0, 0, (20 * 11 + 60) / 80, 0, 20 * 3 / 80]


def test_ef21_corrects_an_estimate_on_both_sides() -> None:
    method = EF21(density=0.25)
    local = Scripted(WIDE, floats(1, -5, 2, 0, 3))
    down = Message(weights=np.zeros(5, np.float32))
    one = method.fit(method.start_client(WIDE, "a"), down, local)  # type: ignore[arg-type]
    assert one.reply.sparse("correction").dense().tolist() == [0, -5, 0, 0, 3]
    assert one.state.estimate.tolist() == [0, -5, 0, 0, 3]
    assert one.lost.estimate.tolist() == [0] * 5
    server = answered(method, method.start_server(WIDE), [("a", one.reply)], WIDE)
    assert server.estimate.tolist() == [0, -2.5, 0, 0, 1.5], "the other client's estimate is zero"
    assert server.weights.tolist() == [0, -2.5, 0, 0, 1.5]
    two = method.fit(one.state, down, replace(local, round=1))  # type: ignore[arg-type]
    assert two.reply.sparse("correction").dense().tolist() == [0, 0, 2, 0, 0]
    assert isinstance(two.state, ef21.ClientState)
    assert answered(method, server, [("a", two.reply)], WIDE, 1).weights.tolist() == [0, -5, 1, 0, 3]


@pytest.mark.parametrize("name", ["apfl", "fedala", "scaffold", "topk", "ef21"])
def test_it_learns(name: str) -> None:
    result = sparsona.run(name, data="digits", clients=6, partition="iid", rounds=12, evaluation={"every": 0})
    assert result.summary["accuracy"]["pre"]["mean"] > 0.6
