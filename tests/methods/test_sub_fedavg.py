"""Sub-FedAvg: when it prunes, what it prunes, and who is averaged."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from torch import nn
from watching import LoseOnce, local_of, watch

from sparsona.by_client import ByClient
from sparsona.errors import InputError
from sparsona.experiment import make_method
from sparsona.federation.setup import Setup
from sparsona.layout import Layout
from sparsona.message import Message, Positions
from sparsona.method import Arrival, ServerContext
from sparsona.methods._masked import ServerState
from sparsona.methods.sub_fedavg import SubFedAvg, pruned
from sparsona.ops.masks import pack, unpack
from sparsona.testing import check_method, tiny_setup
from sparsona.training.config import TrainConfig

EAGER = {"distance": 0.0, "accuracy": 0.0, "rate": 0.2}


def two_epochs(setup: Setup) -> Setup:
    return replace(setup, config=TrainConfig(epochs=2, batch=8, lr=0.1))


@pytest.mark.parametrize("options", [{}, EAGER, {**EAGER, "land": True}])
def test_the_contract_holds(options: dict[str, Any]) -> None:
    check_method(SubFedAvg(**options))


def test_masks_shrink_to_the_target_and_biases_stay() -> None:
    run = watch(SubFedAvg(**EAGER), rounds=6, change=two_epochs)  # type: ignore[arg-type]
    layout = run.task.layout
    for client in run.task.clients:
        masks = [run.mask(client, done) for done in range(7)]
        assert masks[0].all()
        for before, after in pairwise(masks):
            assert not (after & ~before).any()
            assert (after == before).all() == (before.mean() <= 0.5)
        assert 0.4 < masks[-1].mean() <= 0.5
        assert all(masks[-1][t.slice].all() for t in layout.tensors if "bias" in t.name)


def test_the_last_step_can_land_on_the_target() -> None:
    run = watch(SubFedAvg(**EAGER, land=True), rounds=8, change=two_epochs)
    assert run.mask("c0", 8).mean() == pytest.approx(0.5, abs=0.02)
    assert run.mask("c0", 8).mean() > watch(SubFedAvg(**EAGER), rounds=8, change=two_epochs).mask("c0", 8).mean()  # type: ignore[arg-type]


def test_the_entries_below_the_quantile_go() -> None:
    layout = Layout.of(nn.Sequential(nn.Linear(30, 20), nn.BatchNorm1d(20)))
    rng = np.random.default_rng(0)
    weights = rng.normal(size=layout.size).astype(np.float32)
    mask = np.ones(layout.size, np.bool_)
    mask[:100] = False
    out = pruned(mask, weights, 0.1, layout)
    t = layout["0.weight"]
    alive = np.abs(weights[t.slice][mask[t.slice]].astype(np.float64))
    limit = np.percentile(alive, 10)
    assert (out[t.slice] == (mask[t.slice] & (np.abs(weights[t.slice]) >= limit))).all()
    assert out[t.slice].sum() == 450
    assert out[layout["0.bias"].slice].all()
    assert out[layout["1.weight"].slice].sum() == 18
    assert len(out) == layout.size == 600 + 20 + 20 + 20


@pytest.mark.parametrize(
    ("options", "prunes"),
    [
        ({}, True),
        ({"distance": 1.0}, False),
        ({"accuracy": 1.0}, False),
        ({"target": 1.0}, False),
        ({"rate": 0.0}, False),
    ],
)
def test_it_prunes_only_if_all_three_conditions_hold(options: dict[str, float], prunes: bool) -> None:
    method = SubFedAvg(**{**EAGER, **options})  # type: ignore[arg-type]
    setup = two_epochs(tiny_setup(method))
    local, size = local_of(setup), setup.task.layout.size
    state = method.start_client(setup.task, "c0")
    down = method.send(method.start_server(setup.task), "c0", ServerContext(setup.task, 0))
    fit = method.fit(state, down, local)
    mask = unpack(fit.state.mask, size)
    assert mask.all() is not np.bool_(prunes)
    assert isinstance(fit.model, np.ndarray)
    assert (fit.model[~mask] == 0).all()
    assert len(fit.reply.vector("values")) == mask.sum()
    assert len(fit.reply.positions("change").indices) == size - mask.sum()


def test_one_epoch_never_prunes_but_steps_do() -> None:
    for config, prunes in (
        (TrainConfig(epochs=1, batch=8), False),
        (TrainConfig(steps=1, batch=8), False),
        (TrainConfig(steps=6, batch=8), True),
    ):
        run = watch(SubFedAvg(**EAGER), rounds=1, change=lambda s, r=config: replace(s, config=r))  # type: ignore[arg-type, misc]
        assert bool(run.mask("c0", 1).mean() < 1) is prunes


def test_training_is_as_long_as_the_recipe_says_and_keeps_its_momentum() -> None:
    for config in (TrainConfig(epochs=3, batch=8, momentum=0.9), TrainConfig(steps=7, batch=8)):
        method = SubFedAvg(target=1.0)
        setup = replace(tiny_setup(method), config=config)
        local = local_of(setup)
        down = method.send(method.start_server(setup.task), "c0", ServerContext(setup.task, 0))
        method.fit(method.start_client(setup.task, "c0"), down, local)
        counted, local.runner.flops = local.runner.flops, 0
        local.train(setup.task.initial)
        assert counted == local.runner.flops


def test_a_position_is_averaged_over_those_who_trained_it() -> None:
    method = SubFedAvg()
    setup = tiny_setup(method)
    size = setup.task.layout.size
    a, b = np.ones(size, np.bool_), np.ones(size, np.bool_)
    a[:2] = False  # a has lost 0 and 1, b 1 and 2
    b[1:3] = False
    server = ServerState(np.full(size, 9, np.float32), ByClient({"a": pack(a), "b": pack(b)}))
    none = Positions(size, np.zeros(0, np.int64))
    last = np.array([size - 1])
    kept = a.copy()
    kept[last] = False  # and a prunes the last one now: its zero still counts
    replies = [
        Arrival("a", Message(values=np.full(int(kept.sum()), 2, np.float32), change=Positions(size, last)), 0),
        Arrival("b", Message(values=np.full(int(b.sum()), 4, np.float32), change=none), 0),
    ]
    after = method.aggregate(server, replies, ServerContext(setup.task, 0))
    assert after.weights[[0, 1, 2, 3, size - 1]].tolist() == [4, 9, 2, 3, 2]
    assert (unpack(after.masks["a"], size) == kept).all()


def test_after_a_lost_reply_the_mask_of_the_server_counts() -> None:
    run = watch(SubFedAvg(**EAGER), rounds=4, change=two_epochs, schedule=LoseOnce("c1", 1))  # type: ignore[arg-type]
    assert (run.mask("c1", 1) == run.mask("c1", 2)).all()
    assert (run.mask("c0", 1) != run.mask("c0", 2)).any()
    assert (run.mask("c1", 2) != run.mask("c1", 4)).any()


def test_bytes_shrink_with_the_masks_both_ways() -> None:
    run = watch(SubFedAvg(**EAGER), rounds=5, change=two_epochs)  # type: ignore[arg-type]
    reports = run.rounds.run_log.rounds
    assert reports[0].paper_down == 3 * 4 * run.task.layout.size
    for before, after, done in zip(reports, reports[1:], range(1, 5), strict=False):
        active = sum(int(run.mask(client, done).sum()) for client in run.task.clients)
        assert before.paper_up == after.paper_down == 4 * active
        assert after.down.positions == 0
    assert reports[-1].down.total < 0.65 * reports[0].down.total


@pytest.mark.parametrize("options", [{"rate": 2}, {"target": -0.1}, {"accuracy": 50}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        make_method("sub-fedavg", options)
