"""FedPSE: the exact examples of its specification, and what happens when the network or a client fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scripted import vector_of
from torch import nn

import sparsona
from sparsona.chance import Chance
from sparsona.engines.inprocess import InProcess
from sparsona.errors import Diverged, InputError
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import EVERYONE, Plan
from sparsona.layout import Layout
from sparsona.message import IndexSet, Message, Sparse, Stamp, Vector
from sparsona.method import Arrival, ServerContext, Task
from sparsona.methods._feedback import ClientState
from sparsona.methods.fedpse import FedPSE, Owed, ServerState
from sparsona.models.small import convnet2
from sparsona.ops.moments import Moments
from sparsona.ops.sparse import Packed
from sparsona.testing import Scripted as Fates
from sparsona.testing import check_method, tiny_setup
from sparsona.testing.delivery import Event
from sparsona.training.job import Trained
from sparsona.training.vector import FlatModule
from sparsona.wire import Limit, decode, encode


def task(module: nn.Module | None = None) -> Task:
    flat = FlatModule(module or nn.Linear(9, 1))
    return Task(flat.layout, flat.read(), ("a", "b", "c"), 5, (9,), 2, Chance(3))


def arrivals(updates: Mapping[str, Vector | Sparse], examples: Mapping[str, int] | None = None) -> list[Arrival]:
    found = []
    for client, update in sorted(updates.items()):
        sparse = update if isinstance(update, Sparse) else Sparse.take(update, np.flatnonzero(update))
        found.append(Arrival(client, Message(update=sparse, examples=(examples or {}).get(client, 1)), 0))
    return found


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


@dataclass(frozen=True)
class Scripted:
    """A client whose training adds a given change."""

    task: Task
    change: Vector
    round: int = 0
    client: str = "a"
    examples: int = 20

    @property
    def layout(self) -> Layout:
        return self.task.layout

    def train(self, start: Vector, moments: Moments | None = None) -> Trained:
        if not np.isfinite(self.change).all():
            raise Diverged("the loss is nan")
        memory = Moments(1 + (moments.step if moments else 0), self.change, self.change)
        return Trained(start + self.change, 0.1, 20, memory)


def fit(method: FedPSE, own: ClientState, local: Any, down: Message | None = None) -> Any:
    return method.fit(own, (down or Message()).stamped(Stamp(local.round)), local)


def rounds_of(method: FedPSE, schedule: Any = EVERYONE, rounds: int = 4, clients: int = 3) -> Rounds:
    setup = tiny_setup(method, clients, rounds)
    loop = assemble(setup, InProcess(setup), schedule, LAST_ROUND)
    loop.run()
    return loop


@pytest.mark.parametrize(
    "method",
    [
        FedPSE(),
        FedPSE(sparsity=0.0),
        FedPSE(sparsity=0.5, scope="model"),
        FedPSE(ewa=False, dps=False),
        FedPSE(broadcast_absent=True),
        FedPSE(opt_state="persist"),
    ],
)
def test_conformance(method: FedPSE) -> None:
    check_method(method)


def test_options_are_checked() -> None:
    for wrong in ({"sparsity": 1.0}, {"sparsity": -0.1}, {"scope": "layer"}):
        with pytest.raises(InputError, match="fedpse"):
            sparsona.run("fedpse", options=wrong)


# The server


def merged(updates: Mapping[str, Vector], method: FedPSE, examples: Mapping[str, int] | None = None) -> ServerState:
    where = task(nn.Linear(len(next(iter(updates.values()))) - 1, 1))
    return method.aggregate(method.start_server(where), arrivals(updates, examples), ServerContext(where, 0))


def test_the_papers_examples_of_ewa() -> None:
    keep_all = FedPSE(sparsity=0.0, scope="model")
    alike = {"a": vector(0, 1), "b": vector(2, 0), "c": vector(0, 3)}
    server = merged(alike, keep_all)
    assert all(owed.sparse().values.tolist() == [2, 2] for owed in server.owed.updates.values())
    server = merged(alike, replace(keep_all, ewa=False))
    assert np.allclose(server.owed.updates["a"].sparse().dense(), [2 / 3, 4 / 3])
    differ = {"a": vector(0, 2), "b": vector(3, 0), "c": vector(0, 4)}
    assert merged(differ, keep_all).owed.updates["b"].sparse().dense().tolist() == [3, 3]
    assert merged(differ, replace(keep_all, ewa=False)).owed.updates["b"].sparse().dense().tolist() == [1, 2]


def test_ewa_by_examples() -> None:
    server = merged({"a": vector(4, 0), "b": vector(8, 0)}, FedPSE(sparsity=0.0), {"a": 1, "b": 3})
    assert server.owed.updates["a"].sparse().dense().tolist() == [7, 0]


def replies(seed: int, keep: float, size: int = 200, clients: str = "abcd") -> dict[str, Vector]:
    rng = np.random.default_rng(seed)
    found = {}
    for client in clients:
        update = rng.normal(size=size + 1).astype(np.float32)
        update[rng.permutation(size)[: int(size * (1 - keep))]] = 0
        found[client] = update
    return found


@pytest.mark.parametrize("scope", ["tensor", "model"])
@pytest.mark.parametrize("seed", range(3))
def test_the_choice_for_each_client(seed: int, scope: Any) -> None:
    """|D_i| = k; what both have is in; nothing from elsewhere; values are those of the whole aggregate."""
    method = FedPSE(sparsity=0.9, scope=scope)
    updates = replies(seed, 0.1)
    server = merged(updates, method)
    whole = merged(updates, FedPSE(sparsity=0.0, dps=False)).owed.updates["a"].sparse().dense()
    common = set(merged(updates, replace(method, dps=False)).owed.updates["a"].sparse().indices)
    for client, update in updates.items():
        chosen, own = server.owed.updates[client].sparse(), set(np.flatnonzero(update))
        assert len(chosen.indices) == len(common)
        assert common & own <= set(chosen.indices) <= common | own
        assert np.array_equal(chosen.values, whole[chosen.indices])
        assert 0 < server.distance[client] < 1


def test_without_dps_all_get_the_same() -> None:
    server = merged(replies(1, 0.1), FedPSE(dps=False))
    first, *others = (owed.sparse() for owed in server.owed.updates.values())
    assert all(np.array_equal(first.indices, other.indices) for other in others)


def test_one_client_gets_back_what_it_sent() -> None:
    update = np.zeros(10, np.float32)
    update[[2, 9]] = 0.1, -0.7
    server = merged({"a": update}, FedPSE(), {"a": 7})
    assert np.array_equal(server.owed.updates["a"].sparse().dense(), update)
    assert server.distance == {"a": 0.0}


def test_identical_clients_are_at_no_distance() -> None:
    update = replies(0, 0.1)["a"]
    server = merged(dict.fromkeys("abc", update), FedPSE(), {"a": 3, "b": 5, "c": 9})
    assert set(server.distance.values()) == {0.0}
    assert all(
        np.array_equal(owed.sparse().dense(), server.owed.updates["a"].sparse().dense())
        for owed in server.owed.updates.values()
    )


def test_keeping_everything_is_fedavg_on_updates() -> None:
    rng = np.random.default_rng(0)
    updates = {client: rng.normal(size=50).astype(np.float32) for client in "abc"}
    weights = {"a": 1, "b": 2, "c": 5}
    server = merged(updates, FedPSE(sparsity=0.0), weights)
    mean = sum(weights[c] * updates[c].astype(np.float64) for c in "abc") / 8
    for client in "abc":
        assert np.allclose(server.owed.updates[client].sparse().dense(), mean, atol=1e-6)


def test_keeping_everything_is_fedavg_over_rounds() -> None:
    rng = np.random.default_rng(1)
    wards = {w: (rng.normal(size=(40, 6)).astype("float32"), rng.integers(0, 3, 40)) for w in ("east", "north", "west")}
    same: dict[str, Any] = {"data": wards, "model": nn.Linear(6, 3), "rounds": 4, "seed": 2}
    pse, avg = sparsona.run("fedpse", options={"sparsity": 0.0}, **same), sparsona.run("fedavg", **same)
    for ward in wards:
        assert np.allclose(vector_of(pse.models[ward].model), vector_of(avg.models[ward].model), atol=1e-5)


def test_exact_zeros_are_not_sent_and_do_not_count() -> None:
    """A dead unit's weight does not move: with EWA its owner has no say in it, with FedAvg it has."""
    updates = {"a": vector(0, 1), "b": vector(6, 1)}
    assert merged(updates, FedPSE(sparsity=0.0)).owed.updates["a"].sparse().dense().tolist() == [6, 1]
    assert merged(updates, FedPSE(sparsity=0.0, ewa=False)).owed.updates["a"].sparse().dense().tolist() == [3, 1]


def test_an_update_of_zeros_changes_no_count() -> None:
    updates = {"a": vector(0, 0, 0), "b": vector(6, 2, 0)}
    server = merged(updates, FedPSE(sparsity=0.0))
    assert server.owed.updates["b"].sparse().dense().tolist() == [6, 2, 0]
    assert server.distance["a"] == 0.5
    nothing = merged({"a": vector(0, 0, 0)}, FedPSE())
    assert len(nothing.owed.updates["a"].sparse().indices) == 0
    assert nothing.distance["a"] == 0.5


def test_the_reference_model_is_the_sum_of_the_common_choices() -> None:
    where, method = task(nn.Linear(200, 1)), FedPSE()
    server = method.start_server(where)
    expected = where.initial
    for number in range(3):
        updates = replies(number, 0.1)
        server = method.aggregate(server, arrivals(updates), ServerContext(where, number))
        expected = expected + merged(updates, replace(method, dps=False)).owed.updates["a"].sparse().dense()
    assert np.array_equal(server.weights, expected)
    assert np.array_equal(method.send(server, "somebody new", ServerContext(where, 3)).vector("weights"), expected)
    assert "update" in method.send(server, "a", ServerContext(where, 3))


def test_nothing_is_sent_before_anybody_was_heard_of() -> None:
    where, method = task(), FedPSE()
    assert len(method.send(method.start_server(where), "a", ServerContext(where, 0))) == 0


def test_absent_clients_keep_what_they_were_owed() -> None:
    where = task(nn.Linear(200, 1))
    first, second = replies(0, 0.1, clients="ab"), replies(1, 0.1, clients="b")
    for method in (FedPSE(), FedPSE(broadcast_absent=True)):
        early = method.aggregate(method.start_server(where), arrivals(first), ServerContext(where, 0))
        late = method.aggregate(early, arrivals(second), ServerContext(where, 1))
        before, after = early.owed.updates["a"].sparse().dense(), late.owed.updates["a"].sparse().dense()
        missed = merged(second, replace(method, dps=False)).owed.updates["b"].sparse().dense()
        assert np.array_equal(after, before + missed if method.broadcast_absent else before)
        assert early.distance["a"] == late.distance["a"]


def test_a_member_that_was_never_heard_ages_and_only_a_newcomer_gets_the_reference_model() -> None:
    where = replace(task(nn.Linear(200, 1)), clients=("a", "b", "c"))
    for method in (FedPSE(), FedPSE(broadcast_absent=True)):
        server = method.aggregate(
            method.start_server(where), arrivals(replies(0, 0.1, clients="ab")), ServerContext(where, 0)
        )
        silent, new = (method.send(server, who, ServerContext(where, 1)) for who in ("c", "somebody new"))
        assert np.array_equal(new.vector("weights"), server.weights)
        assert ("weights" in silent) == method.broadcast_absent
        assert len(silent) == method.broadcast_absent


def test_who_comes_late_gets_what_was_common_meanwhile_beside_its_own_choice() -> None:
    where, method = task(nn.Linear(200, 1)), FedPSE(broadcast_absent=True)
    plain, everybody = replace(method, dps=False), [replies(number, 0.1, clients="ab") for number in range(4)]
    server = method.aggregate(method.start_server(where), arrivals(everybody[0]), ServerContext(where, 0))
    missed = np.zeros(201, np.float32)
    for number in (1, 2):  # a trains in round 1, and its reply comes in round 3
        others = {"b": everybody[number]["b"]}
        context = ServerContext(where, number, unanswered=frozenset("a"))
        server = method.aggregate(server, arrivals(others), context)
        missed += merged(others, plain).owed.updates["b"].sparse().dense()
    late = method.aggregate(server, arrivals(everybody[3]), ServerContext(where, 3))
    punctual = replace(server, owed=Owed(server.owed.updates))
    chosen = method.aggregate(punctual, arrivals(everybody[3]), ServerContext(where, 3)).owed.updates["a"].sparse()
    assert np.allclose(late.owed.updates["a"].sparse().dense(), chosen.dense() + missed, atol=1e-6)
    assert missed.any()
    assert not late.owed.missed


def test_who_came_late_in_vain_is_sent_what_it_missed_once() -> None:
    """Its reply does not count, and what it goes on from lacks the common choices: its next update has them all, and
    the one after that none of them."""
    where, method = task(nn.Linear(200, 1)), FedPSE(broadcast_absent=True)
    everybody = [replies(number, 0.1, clients="ab") for number in range(4)]
    server = method.aggregate(method.start_server(where), arrivals(everybody[0]), ServerContext(where, 0))
    for number, training in ((1, "a"), (2, "")):  # a trains in round 1, and its reply is refused in round 2
        context = ServerContext(where, number, unanswered=frozenset(training))
        server = method.aggregate(server, arrivals({"b": everybody[number]["b"]}), context)
    fresh = method.aggregate(method.start_server(where), arrivals(everybody[3]), ServerContext(where, 3))
    after = method.aggregate(server, arrivals(everybody[3]), ServerContext(where, 3))
    assert np.array_equal(after.owed.updates["a"].sparse().dense(), fresh.owed.updates["a"].sparse().dense())


def test_the_draw_depends_on_round_and_client_only() -> None:
    where, method, updates = task(nn.Linear(200, 1)), FedPSE(), replies(0, 0.1)

    def owed(number: int, among: Mapping[str, Vector]) -> IndexSet:
        server = method.aggregate(method.start_server(where), arrivals(among), ServerContext(where, number))
        return server.owed.updates["a"].sparse().indices

    assert np.array_equal(owed(0, updates), owed(0, dict(reversed(updates.items()))))
    assert not np.array_equal(owed(0, updates), owed(1, updates))


# The client


def test_what_is_sent_and_what_is_kept_make_the_update() -> None:
    where, method = task(nn.Linear(99, 1)), FedPSE()
    rng = np.random.default_rng(0)
    own = replace(method.start_client(where, "a"), residual=rng.normal(size=100).astype(np.float32))
    change = rng.normal(size=100).astype(np.float32)
    done = fit(method, own, Scripted(where, change))
    wanted = (where.initial + change) - where.initial + own.residual
    sent = done.reply.sparse("update")
    assert len(sent.indices) == 10 + 1
    assert np.array_equal(sent.dense() + done.state.residual, wanted), "to the last bit"
    assert not (sent.dense() * done.state.residual).any()
    assert done.reply.examples() == 20
    assert np.array_equal(done.model, where.initial + change)


def test_a_round_starts_from_the_base_not_from_the_trained_model() -> None:
    where, method = task(), FedPSE(sparsity=0.5)
    done = fit(method, method.start_client(where, "a"), Scripted(where, np.ones(10, np.float32)))
    down = Message(update=Sparse(10, np.array([3]), vector(0.25)))
    model = method.personal_model(done.state, down, Scripted(where, np.ones(10)))  # type: ignore[arg-type]
    assert np.array_equal(model, where.initial + down.sparse("update").dense())


def test_a_lost_reply_returns_to_the_residual_and_the_downlink_is_not_applied_twice() -> None:
    where, method = task(), FedPSE(sparsity=0.5)
    change, again = np.arange(10, dtype=np.float32) - 3, np.linspace(0.5, -1, 10).astype(np.float32)
    down = Message(update=Sparse(10, np.array([3, 4]), vector(0.25, 0.5)))
    first = fit(method, method.start_client(where, "a"), Scripted(where, change))
    base = where.initial + down.sparse("update").dense()

    second = fit(method, first.state, Scripted(where, again, 1), down)
    assert np.array_equal(second.model, base + again)
    wanted = second.reply.sparse("update").dense() + second.state.residual

    lost = fit(method, second.lost, Scripted(where, again, 2), down)
    assert np.array_equal(lost.model, base + again), "the server still speaks of the model it knows"
    everything = lost.reply.sparse("update").dense() + lost.state.residual
    assert np.array_equal(everything, (base + again) - base + wanted), "nothing of the lost reply is lost"

    heard = fit(method, lost.state, Scripted(where, again, 3), down)
    assert np.array_equal(heard.model, base + down.sparse("update").dense() + again)
    kept = heard.reply.sparse("update").dense() + heard.state.residual
    assert np.allclose(kept, again + lost.state.residual, atol=1e-6), "what arrived is not sent again"


def test_a_client_that_is_never_heard_keeps_all_it_has_learnt() -> None:
    lost: dict[str, Event] = {"c1": "lost"}
    loop = rounds_of(FedPSE(), Fates((lost,) * 3), rounds=3)
    memory = loop.engine.store.get("c1")
    assert memory.if_lost is not None
    (own,) = memory.if_lost
    assert "c1" not in loop.server.owed.updates
    assert np.array_equal(own.weights, loop.setup.task.initial), "it has got nothing"
    assert np.count_nonzero(own.residual) > 0.5 * len(own.residual)
    (alike,) = rounds_of(FedPSE(), rounds=3).engine.store.get("c1").if_lost
    assert np.linalg.norm(own.residual) > np.linalg.norm(alike.residual)


def test_an_update_that_is_not_finite_is_refused_and_the_residual_kept() -> None:
    where, method = task(), FedPSE()
    own = replace(method.start_client(where, "a"), residual=np.ones(10, np.float32))
    with pytest.warns(UserWarning, match="nothing is sent"):
        done = fit(method, own, Scripted(where, np.full(10, np.nan, np.float32)))
    assert len(done.reply) == 0
    assert done.state is own
    assert np.array_equal(done.model, where.initial)
    huge = replace(own, residual=np.full(10, np.inf, np.float32))
    with pytest.warns(UserWarning, match="not finite"):
        assert len(fit(method, huge, Scripted(where, np.ones(10, np.float32))).reply) == 0


def test_a_client_without_data_is_skipped() -> None:
    where, method = task(), FedPSE()
    own = method.start_client(where, "a")
    done = fit(method, own, Scripted(where, np.ones(10, np.float32), examples=0))
    assert len(done.reply) == 0
    assert done.state is own


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("method", ["fedpse", "fedstc", "fedscr"])
def test_a_run_survives_a_client_that_diverges(method: str) -> None:
    rng = np.random.default_rng(0)
    wards = {w: (rng.normal(size=(40, 5)).astype("float32"), rng.integers(0, 2, 40)) for w in ("east", "west")}
    wards["broken"] = (np.full((40, 5), 1e38, np.float32), rng.integers(0, 2, 40))
    result = sparsona.run(method, data=wards, model=nn.Linear(5, 2), rounds=3)
    assert all(np.isfinite(vector_of(result.models[ward].model)).all() for ward in ("east", "west"))
    assert result.summary["bytes"]["up"] > 0


def test_the_optimisers_memory_may_survive() -> None:
    where = task()
    for state, steps in (("fresh", None), ("persist", 2)):
        method = FedPSE(opt_state=state)  # type: ignore[arg-type]
        own = method.start_client(where, "a")
        for number in range(2):
            own = fit(method, own, Scripted(where, np.ones(10, np.float32), number)).state
        assert (own.moments.step if own.moments else None) == steps


# The loop


@dataclass(frozen=True)
class Turns:
    """One client a round, in turn."""

    def plan(self, round: int, idle: Any, chance: Chance) -> Plan:
        return Plan((sorted(idle)[round % len(idle)],))


def test_partial_participation() -> None:
    loop = rounds_of(FedPSE(), Turns(), rounds=4)
    assert sorted(loop.server.owed.updates) == ["c0", "c1", "c2"]
    assert loop.engine.store.get("c1").order == (1, 0)
    reports = loop.run_log.rounds
    dense = 4 * loop.setup.task.layout.size
    assert all(0 < report.down.total < 16 for report in reports[:3]), "nothing has come for it: an order, and no part"
    assert all(report.down.values == report.down.positions == 0 for report in reports[:3])
    assert 16 < reports[3].down.total < 0.4 * dense, "then what it is owed"


def test_buffers_stay_with_the_personal_model() -> None:
    rng = np.random.default_rng(0)
    wards = {w: (rng.normal(i, 1, (40, 5)).astype("float32"), rng.integers(0, 2, 40)) for i, w in enumerate("ab")}
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    result = sparsona.run("fedpse", data=wards, model=net, rounds=2)
    means = [result.models[w].tensors()["1.running_mean"] for w in "ab"]
    assert np.abs(means[0] - means[1]).max() > 1e-3
    assert (
        result.summary["bytes"]["up"] < sparsona.run("fedavg", data=wards, model=net, rounds=2).summary["bytes"]["up"]
    )


# The wire


def test_a_reply_survives_the_wire_and_is_about_8_7_times_smaller() -> None:
    layout = Layout.of(convnet2((1, 28, 28), 10))
    where = Task(layout, np.zeros(layout.size, np.float32), ("a",), 1, (1, 28, 28), 10, Chance(0))
    change = np.random.default_rng(0).normal(0, 0.01, layout.size).astype(np.float32)
    method = FedPSE()
    reply = fit(method, method.start_client(where, "a"), Scripted(where, change)).reply
    frame = encode(reply, layout.lengths).data
    back = decode(frame, Limit(method.max_numbers(where)), layout.lengths).sparse("update")
    assert np.array_equal(back.indices, reply.sparse("update").indices)
    assert np.array_equal(back.values, reply.sparse("update").values)
    assert len(back.indices) == 29 + 3 + 1843 + 6 + 1600 + 1
    dense = encode(Message(weights=change, examples=20), layout.lengths).data
    assert 8.5 < len(dense) / len(frame) < 10.5, "both are what really travels"


def entry(value: float) -> Packed:
    return Packed.of(Sparse(1, np.array([0]), np.array([value], np.float32)))


def sent(owed: Owed, client: str) -> float:
    return float(owed.updates[client].sparse().values[0])


def begun() -> Owed:
    """k was sent 1 and trains; what was common to the round meanwhile is 10."""
    owed = Owed().given({"k": entry(1)}, Owed(), ())
    return owed.broadcast(entry(10), {"k"}).given({"a": entry(0)}, owed, ())


def test_a_late_reply_that_counts_brings_what_was_missed() -> None:
    owed = begun()
    after = owed.broadcast(entry(100), ()).given({"k": entry(5)}, owed, {"k"})
    assert sent(after, "k") == 15, "its choice in place of the last round's common one"
    assert not after.missed


def test_a_late_reply_that_does_not_count_leaves_nothing_missed() -> None:
    """The client goes back and is sent 111: its next own choice is all that it gets then."""
    owed = begun()
    owed = owed.broadcast(entry(100), ()).given({"a": entry(0)}, owed, ())
    assert sent(owed, "k") == 111
    assert not owed.missed
    after = owed.broadcast(entry(1000), ()).given({"k": entry(5)}, owed, ())
    assert sent(after, "k") == 5


def test_a_client_that_is_late_again_has_missed_the_new_round_only() -> None:
    owed = begun()
    owed = owed.broadcast(entry(100), ()).given({"a": entry(0)}, owed, ())
    owed = owed.broadcast(entry(1000), {"k"}).given({"a": entry(0)}, owed, ())
    after = owed.broadcast(entry(9), ()).given({"k": entry(5)}, owed, {"k"})
    assert sent(after, "k") == 1005


def test_a_reply_in_its_own_round_has_missed_nothing() -> None:
    """Between the two nobody's reply counted, so no common choice has cleared what was missed."""
    owed = begun()
    assert sent(owed, "k") == 11
    after = owed.broadcast(entry(100), ()).given({"k": entry(5)}, owed, ())
    assert sent(after, "k") == 5
