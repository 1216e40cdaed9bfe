"""Subsampling: a random part of the update, and of its positions only the seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from watching import local_of, watch

from sparsona.errors import InputError, WireError
from sparsona.experiment import make_method
from sparsona.message import Message
from sparsona.method import Arrival, ServerContext
from sparsona.methods.compressed import Subsampling
from sparsona.methods.fedavg import FedAvg
from sparsona.ops.server import ServerState
from sparsona.testing import check_method, tiny_setup


@pytest.mark.parametrize("options", [{}, {"keep": 0.1, "rescale": True}, {"keep": 1.0}])
def test_the_contract_holds(options: dict[str, Any]) -> None:
    check_method(Subsampling(**options))


def test_all_of_the_update_is_fedavg() -> None:
    ours, theirs = (watch(method) for method in (Subsampling(keep=1.0), FedAvg()))
    assert np.abs(ours.servers[1].weights - theirs.servers[1].weights).max() < 1e-6


def test_what_is_not_sent_does_not_move() -> None:
    method = Subsampling(keep=0.3)
    setup = tiny_setup(method)
    server, turn = method.start_server(setup.task), ServerContext(setup.task, 0)
    fit = method.fit(None, method.send(server, "c0", turn), local_of(setup))
    mask = method.sample(fit.reply.integer("seed"), setup.task.layout)
    assert mask.sum() == int(0.3 * setup.task.layout.size + 0.5) == len(fit.reply.vector("values"))
    after = method.aggregate(server, [Arrival("c0", fit.reply, 0)], turn).weights
    assert (after[~mask] == setup.task.initial[~mask]).all()
    assert isinstance(fit.model, np.ndarray)
    assert np.abs(after[mask] - fit.model[mask]).max() < 1e-6
    assert set(fit.reply) == {"values", "seed", "examples"}


def test_masks_are_fresh_for_every_client_and_round() -> None:
    method = Subsampling()
    setup = tiny_setup(method)
    down = method.send(method.start_server(setup.task), "c0", ServerContext(setup.task, 0))
    seeds = {
        method.fit(None, down, local_of(setup, client, round)).reply.integer("seed")
        for client in ("c0", "c1")
        for round in (0, 1)
    }
    assert len(seeds) == 4
    masks = [method.sample(seed, setup.task.layout) for seed in seeds]
    assert 0.3 < (masks[0] == masks[1]).mean() < 0.7


def test_rescaled_updates_are_right_on_average() -> None:
    setup = tiny_setup(Subsampling())
    size, turn = setup.task.layout.size, ServerContext(setup.task, 0)
    update = np.linspace(-1, 1, size).astype(np.float32)
    for rescale in (True, False):
        method = Subsampling(keep=0.25, rescale=rescale)
        replies = [
            Arrival(f"c{i}", Message(values=update[method.sample(i, setup.task.layout)], seed=i, examples=5), 0)
            for i in range(4000)
        ]
        step = method.aggregate(ServerState(np.zeros(size, np.float32)), replies, turn).weights
        assert np.abs(step - update * (1 if rescale else 0.25)).max() < (0.1 if rescale else 0.03)


def test_half_up_and_all_down() -> None:
    run = watch(Subsampling())
    size = run.task.layout.size
    for report in run.rounds.run_log.rounds:
        assert report.paper_down == 3 * 4 * size
        assert report.paper_up == 3 * 4 * ((size + 1) // 2)
        assert report.up.positions == 0


def test_a_reply_that_does_not_fit_its_seed_is_refused() -> None:
    method = Subsampling()
    setup = tiny_setup(method)
    with pytest.raises(WireError):
        method.aggregate(
            method.start_server(setup.task),
            [Arrival("c0", Message(values=np.zeros(3, np.float32), seed=1, examples=5), 0)],
            ServerContext(setup.task, 0),
        )


@pytest.mark.parametrize("options", [{"keep": 0}, {"keep": 1.1}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="keep"):
        make_method("subsampling", options)
