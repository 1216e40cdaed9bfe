"""FedSTC: ternary both ways, residuals on both sides, and clients that were away."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from torch import nn

import sparsona
from sparsona.chance import Chance
from sparsona.engines.inprocess import InProcess
from sparsona.errors import WireError
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import Plan
from sparsona.layout import Layout
from sparsona.message import Message, Stamp, Vector
from sparsona.method import Arrival, ServerContext, Task
from sparsona.methods._feedback import ClientState
from sparsona.methods.fedstc import FedSTC, as_sparse, ternarise, ternary_bits
from sparsona.ops.moments import Moments
from sparsona.testing import check_method, tiny_setup
from sparsona.training.job import Trained
from sparsona.training.vector import FlatModule


def task(width: int = 49) -> Task:
    flat = FlatModule(nn.Linear(width, 1))
    return Task(flat.layout, flat.read(), ("a", "b"), 5, (width,), 2, Chance(3))


@dataclass(frozen=True)
class Scripted:
    """A client whose training adds a given change."""

    task: Task
    change: Vector
    round: int = 0
    examples: int = 20

    @property
    def layout(self) -> Layout:
        return self.task.layout

    def train(self, start: Vector, moments: Moments | None = None) -> Trained:
        return Trained(start + self.change, 0.1, 20, Moments(0, self.change, self.change))


def fit(method: FedSTC, own: ClientState, local: Any) -> Any:
    return method.fit(own, Message(count=0).stamped(Stamp(local.round)), local)


def noise(seed: int, size: int = 50) -> Vector:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@pytest.mark.parametrize("method", [FedSTC(), FedSTC(sparsity=0.0), FedSTC(history=1, mean="clients")])
def test_conformance(method: FedSTC) -> None:
    check_method(method)


def test_what_is_sent_and_what_is_kept_make_the_update() -> None:
    where, method = task(), FedSTC()
    own = replace(method.start_client(where, "a"), residual=noise(0))
    done = fit(method, own, Scripted(where, noise(1)))
    wanted = (where.initial + noise(1)) - where.initial + noise(0)
    sent = done.reply.ternary("update")
    assert len(sent.indices) == 5 + 1
    kept = np.sort(np.abs(wanted[:49]))[-5:]
    assert sent.magnitudes[0] == pytest.approx(kept.mean(), rel=1e-6)
    assert np.allclose(sent.dense() + done.state.residual, wanted, atol=1e-6)


def test_the_server_averages_compresses_and_remembers_the_rest() -> None:
    where = task()
    parts = {c: ternarise(noise(i), where.layout, 0.9) for i, c in enumerate("ab")}
    first = Message(count=0)
    arrivals = [
        Arrival(c, Message(update=t, examples=n), 0, lambda: first)
        for (c, t), n in zip(parts.items(), (1, 3), strict=True)
    ]
    for method, weights in ((FedSTC(), (0.25, 0.75)), (FedSTC(mean="clients"), (0.5, 0.5))):
        server = method.aggregate(method.start_server(where), arrivals, ServerContext(where, 0))
        mean = weights[0] * parts["a"].dense() + weights[1] * parts["b"].dense()
        sent = ternarise(mean.astype(np.float32), where.layout, 0.9)
        assert np.allclose(server.weights, where.initial + sent.dense(), atol=1e-6)
        assert np.allclose(server.residual, mean - sent.dense(), atol=1e-6)
        again = method.aggregate(server, arrivals, ServerContext(where, 1))
        more = ternarise(mean.astype(np.float32) + server.residual, where.layout, 0.9)
        assert np.allclose(again.weights, server.weights + more.dense(), atol=1e-6)


def test_a_lost_reply_returns_to_the_residual() -> None:
    where, method = task(), FedSTC()
    first = fit(method, method.start_client(where, "a"), Scripted(where, noise(0)))
    lost = fit(method, first.lost, Scripted(where, noise(1), 1))
    wanted = lost.reply.ternary("update").dense() + lost.state.residual
    assert np.allclose(wanted, noise(0) + noise(1), atol=1e-5)
    heard = fit(method, first.state, Scripted(where, noise(1), 1))
    wanted = heard.reply.ternary("update").dense() + heard.state.residual
    assert np.allclose(wanted, first.state.residual + noise(1), atol=1e-5)


def answer(client: str, reply: Message, down: Message) -> Arrival:
    return Arrival(client, reply, 0, lambda: down)


def magnitudes(down: Message) -> list[Vector]:
    return [down.ternary(name).magnitudes for name in down if name != "count"]


@dataclass(frozen=True)
class Script:
    """Who takes part, whose reply is lost and who crashes, by round."""

    invited: tuple[str, ...]
    lost: dict[int, str] = field(default_factory=dict)
    crashed: dict[int, str] = field(default_factory=dict)

    def plan(self, round: int, idle: Any, chance: Chance) -> Plan:
        lost, crashed = frozenset(self.lost.get(round, "").split()), frozenset(self.crashed.get(round, "").split())
        return Plan(tuple(self.invited[round].split()), lost=lost, crashed=crashed)


def rounds_of(method: FedSTC, schedule: Script) -> Rounds:
    setup = tiny_setup(method, rounds=len(schedule.invited))
    loop = assemble(setup, InProcess(setup), schedule, LAST_ROUND)
    loop.run()
    return loop


@pytest.mark.parametrize("history", [1, 2, 32])
def test_every_client_has_the_servers_model_to_the_bit(history: int) -> None:
    """Also those that were away, whose replies were lost, or that crashed: by broadcasts or by the whole model."""
    schedule = Script(
        ("c0 c1 c2", "c0 c1", "c0", "c0 c2", "c0 c1 c2", "c1", "c0 c1 c2"),
        lost={1: "c1", 4: "c0 c2"},
        crashed={3: "c2"},
    )
    loop = rounds_of(FedSTC(history=history, sparsity=0.8), schedule)
    for outcome in loop.finish("personal", loop.setup.task.clients):
        assert isinstance(outcome.model, np.ndarray)
        assert np.array_equal(outcome.model, loop.server.weights)


def test_a_client_that_was_away_gets_what_it_missed_and_no_more() -> None:
    where = task(299)
    method, layout = FedSTC(history=3), where.layout
    server = method.start_server(where)
    parts: list[Any] = []
    for number in range(5):
        reply = Message(update=ternarise(noise(number, 300), layout, 0.9), examples=1)
        down = method.send(server, "a", ServerContext(where, number))
        parts.append(list(down))
        server = method.aggregate(server, [answer("a", reply, down)], ServerContext(where, number))
    assert parts == [["count"], *[["t0", "count"]] * 4], "one ternary broadcast for a client that is always there"
    assert len(server.broadcasts) == 3
    assert server.count == 5

    def sent(to: str) -> Message:
        away = replace(server, applied={"b": 3, "c": 2, "d": 1})
        return method.send(away, to, ServerContext(where, 5))

    assert [part.tolist() for part in magnitudes(sent("b"))] == [t.magnitudes.tolist() for t in server.broadcasts[1:]]
    assert [part.tolist() for part in magnitudes(sent("c"))] == [t.magnitudes.tolist() for t in server.broadcasts]
    assert list(sent("d")) == ["weights", "count"], "what it missed is forgotten"
    assert list(sent("somebody new")) == ["weights", "count"]
    assert {sent(who).integer("count") for who in "bcd"} == {5}


def test_the_whole_model_is_sent_where_it_is_smaller() -> None:
    where, method = task(), FedSTC(sparsity=0.5, history=60)
    server = method.start_server(where)
    for number in range(40):
        reply = Message(update=ternarise(noise(number), where.layout, 0.5), examples=1)
        down = method.send(server, "a", ServerContext(where, number))
        server = method.aggregate(server, [answer("a", reply, down)], ServerContext(where, number))
    assert len(server.broadcasts) == server.count == 40, "nothing is forgotten"
    assert list(method.send(server, "b", ServerContext(where, 40))) == ["weights", "count"]
    assert list(method.send(server, "a", ServerContext(where, 40))) == ["t0", "count"]


def test_bytes_are_a_fraction_of_a_bit_a_weight_both_ways() -> None:
    settings: dict[str, Any] = {"data": "digits", "model": "mlp:200", "clients": 4, "rounds": 4}
    stc, avg = (sparsona.run(name, **settings).summary["bytes"] for name in ("fedstc", "fedavg"))
    assert avg["up"] > 30 * stc["up"]
    assert avg["down"] > 30 * stc["down"]


def test_buffers_are_averaged() -> None:
    rng = np.random.default_rng(0)
    wards = {w: (rng.normal(i, 1, (40, 5)).astype("float32"), rng.integers(0, 2, 40)) for i, w in enumerate("ab")}
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    result = sparsona.run("fedstc", data=wards, model=net, rounds=2)
    means = [result.models[w].tensors()["1.running_mean"] for w in "ab"]
    assert np.array_equal(means[0], means[1])
    assert means[0].any()


LAYOUT = Layout.of(nn.Linear(4, 2))


def test_signs_times_the_mean_magnitude_of_each_tensor() -> None:
    vector = np.array([1, -9, 2, 7, 0, 0, 0.5, -3, 0.25, -0.75], np.float32)
    part = ternarise(vector, LAYOUT, 0.7)
    assert part.indices.tolist() == [1, 3, 9], "2 of 8 and 1 of 2: round half up leaves out 6 and 1"
    assert part.dense().tolist() == [0, -8, 0, 8, 0, 0, 0, 0, 0, -0.75]
    assert np.array_equal(as_sparse(part, LAYOUT).dense(), part.dense())


def test_nothing_to_send() -> None:
    part = ternarise(np.zeros(10, np.float32), LAYOUT, 0.9)
    assert len(part.indices) == 0
    assert not part.dense().any()


def test_buffers_are_left_out() -> None:
    layout = Layout.of(nn.BatchNorm1d(2))
    assert ternarise(np.ones(8, np.float32), layout, 0.0).indices.tolist() == [0, 1, 2, 3]


def test_another_layout_is_refused() -> None:
    with pytest.raises(WireError, match="expected"):
        as_sparse(ternarise(np.zeros(10, np.float32), LAYOUT, 0.9), Layout.of(nn.Linear(2, 4)))


def test_the_estimate_of_bits_is_near_the_wire() -> None:
    from sparsona.message import Message
    from sparsona.wire import encode

    layout = Layout.of(nn.Linear(300, 100))
    part = ternarise(np.random.default_rng(0).normal(size=layout.size).astype(np.float32), layout, 0.9)
    real = 8 * len(encode(Message(update=part), layout.lengths).data)
    assert ternary_bits([part]) == pytest.approx(real, rel=0.05)
