"""FedThin: what travels, what waits, what is kept, and what a client gets that was away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import Scripted, answered, floats, task, vector_of
from torch import nn

import sparsona
from sparsona.message import Message, Sparse
from sparsona.method import ServerContext
from sparsona.methods import fedthin
from sparsona.methods.fedthin import FINEST, ClientState, FedThin
from sparsona.ops.server import ServerStep

SMALL = task(nn.Linear(4, 1))
"""Four weights and a bias: at density 0.5 two weights and the bias are sent."""


def thin(**options: Any) -> FedThin:
    return FedThin(density=0.5, **options)


def update(*pairs: tuple[int, float]) -> Message:
    positions, values = zip(*pairs, strict=True)
    return Message(update=Sparse(5, np.array(positions, np.int64), floats(*values)), examples=10)


def test_a_client_sends_its_largest_entries_as_powers_of_two_and_keeps_the_rest() -> None:
    method, local = thin(), Scripted(SMALL, floats(1.4, -0.2, 0.1, -3.2, 0.3))
    fit = method.fit(method.start_client(SMALL, "a"), Message(moved=floats(0, 0, 0, 0, 0)), local)  # type: ignore[arg-type]
    sent = fit.reply.sparse("update")
    assert sent.indices.tolist() == [0, 3, 4]
    assert sent.values.tolist() == [1, -4, 0.25]
    assert fit.state.residual == pytest.approx([0.4, -0.2, 0.1, 0.8, 0.05])
    assert fit.lost.residual == pytest.approx(local.change)
    assert fit.reply.examples() == 20


def test_what_waits_goes_with_the_next_update() -> None:
    method, local = thin(), Scripted(SMALL, floats(0, 0, 0, 0, 0))
    waiting = ClientState(floats(0, 8, 0, 2, 0), floats(0, 0, 0, 0, 0))
    sent = method.fit(waiting, Message(moved=floats(0, 0, 0, 0, 0)), local).reply.sparse("update")  # type: ignore[arg-type]
    assert sent.dense().tolist() == [0, 8, 0, 2, 0]


def test_a_client_trains_the_shared_model_and_uses_a_running_mean_by_default() -> None:
    method, down = thin(), Message(moved=floats(1, 1, 1, 1, 1))
    fit = method.fit(method.start_client(SMALL, "a"), down, Scripted(SMALL, floats(1, 1, 1, 1, 1)))  # type: ignore[arg-type]
    assert fit.model == pytest.approx([2] * 5)
    assert method.average == 0.7


def test_the_server_averages_by_element_and_keeps_what_it_does_not_broadcast() -> None:
    method = thin(server=ServerStep(momentum=0.5))
    server = method.start_server(SMALL)
    first = answered(method, server, [("a", update((0, 4), (1, 1))), ("b", update((0, 2), (2, 8)))], SMALL)
    # the mean over who sent an entry is 3, 1, 8: the two largest of the weights are broadcast, 3 as 4
    assert first.moved.tolist() == [4, 0, 8, 0, 0]
    assert first.residual.tolist() == [-1, 1, 0, 0, 0]
    # momentum of 1 is left where nothing was sent: half of it again, the reply's 2, and what waited
    second = answered(method, first, [("a", update((3, 2)))], SMALL, 1)
    assert second.moved.tolist() == [4, 2, 8, 2, 0]
    assert second.residual.tolist() == [-1, -0.5, 0, 0, 0]


def test_no_step_is_longer_than_two_median_replies() -> None:
    method = thin(server=ServerStep(lr=3.0), values="float32")
    replies = [("a", update((0, 4))), ("b", update((1, 3))), ("c", update((2, 300), (3, 400)))]
    step = answered(method, method.start_server(SMALL), replies, SMALL)
    assert np.linalg.norm(step.moved + step.residual) == pytest.approx(3 * 2 * 4, rel=1e-6)


def test_a_wish_that_others_have_fulfilled_waits_no_longer() -> None:
    method, nothing = thin(values="float32"), Scripted(SMALL, floats(0, 0, 0, 0, 0))
    begin, wish = method.start_client(SMALL, "a"), Scripted(SMALL, floats(4, 3, 2, -1, 0))
    first = method.fit(begin, Message(moved=floats(0, 0, 0, 0, 0)), wish)  # type: ignore[arg-type]
    assert first.state.residual.tolist() == [0, 0, 2, -1, 0]
    # the model has moved by the client's own reply (4, 3) and, through others, by 1.5 and 3 where it still waits
    later = method.fit(first.state, Message(moved=floats(4, 3, 1.5, 3, 0)), nothing)  # type: ignore[arg-type]
    assert later.reply.sparse("update").dense().tolist() == [0, 0, 0.5, -1, 0]
    lost = method.fit(first.lost, Message(moved=floats(0, 0, 0, 0, 0)), nothing)  # type: ignore[arg-type]
    assert lost.reply.sparse("update").dense().tolist() == [4, 3, 0, 0, 0], "all of a lost reply waits"


def test_it_does_not_run_away_with_much_momentum() -> None:
    """Reviews in small: words that are there or not, and clients that differ in their share of praise.

    Without what :mod:`sparsona.methods.fedthin` says at its top, entries of the model grow beyond 40 here.
    """
    rng, words = np.random.default_rng(0), 100
    taste, rate = rng.normal(0, 1, words), np.minimum(0.5, 2 / np.arange(1, words + 1) ** 0.7)
    rows: dict[str, Any] = {}
    for k in range(10):
        x = (rng.random((400, words)) < rate).astype(np.float32)
        y = (x @ taste - rate @ taste + rng.normal(size=400) > 0).astype(np.int64)
        share = rng.beta(0.5, 0.5)
        kept = np.flatnonzero(rng.random(400) < np.where(y, share, 1 - share))[:60]
        rows[f"f{k}"] = x[kept], y[kept]
    run = sparsona.run(
        "fedthin", data=rows, rounds=40, model="mlp:8", engine="inprocess",
        training={"steps": 10, "batch": 20, "lr": 0.1}, columns={"scaling": "none"},
        options={"density": 0.1, "server": {"momentum": 0.9, "lr": 2.0}},
        evaluation={"every": 0}, personal={"average": 0.0},
    )  # fmt: skip
    assert max(np.abs(vector_of(one.model)).max() for one in run.models.values()) < 5
    assert run.summary["loss"]["last"] < run.summary["loss"]["first"]


def test_steps_below_the_grid_wait() -> None:
    method = thin(server=ServerStep())
    server = method.start_server(SMALL)
    for _ in range(3):
        server = answered(method, server, [("a", update((0, FINEST / 4), (1, 1)))], SMALL)
    assert server.moved[0] == 0
    assert server.residual[0] == 3 * FINEST / 4
    assert answered(method, server, [("a", update((0, FINEST / 4)))], SMALL).moved[0] == FINEST


def test_a_newcomer_gets_the_whole_way_and_starts_from_it() -> None:
    method = thin()
    server = answered(method, method.start_server(SMALL), [("a", update((0, 4)))], SMALL)
    down = method.send(server, "new", ServerContext(SMALL, 1))
    assert down.vector("moved").tolist() == [4, 0, 0, 0, 0]
    local = Scripted(SMALL, floats(0, 0, 0, 0, 0))
    assert vector_of(method.personal_model(method.start_client(SMALL, "new"), down, local)).tolist() == [4, 0, 0, 0, 0]  # type: ignore[arg-type]


def test_the_method_is_a_page() -> None:
    assert len(Path(str(fedthin.__file__)).read_text(encoding="utf-8").splitlines()) <= 120


def bytes_down(method: str, sample: float, **options: Any) -> float:
    """Bytes of a downlink on average, without the first round, in which nothing has moved yet."""
    result = sparsona.run(
        method, data="digits", clients=20, partition="dirichlet-classes:0.3", rounds=20, options=options,
        schedule={"sample": sample}, evaluation={"every": 0}, model="mlp:100", trainer="fused",
    )  # fmt: skip
    later = result.history[1:]
    return sum(report.down.total for report in later) / sum(report.took_part for report in later)


def test_who_missed_broadcasts_gets_their_sum_in_a_fraction_of_a_model() -> None:
    everyone, few, dense = (bytes_down(*cell) for cell in (("fedthin", 1.0), ("fedthin", 0.2), ("fedavg", 0.2)))
    assert everyone < dense / 15
    assert everyone < few < dense / 5


def test_it_learns() -> None:
    common: dict[str, Any] = {"data": "digits", "clients": 10, "partition": "dirichlet-classes:0.3", "rounds": 15}
    accuracy = {
        name: sparsona.run(name, **common).summary["accuracy"]["pre"]["mean"] for name in ("fedthin", "local", "fedavg")
    }
    assert accuracy["fedthin"] > max(accuracy["local"], accuracy["fedavg"]) + 0.01
