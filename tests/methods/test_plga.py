"""LGA and PLGA, and the other methods for late models: the exact tests of their specification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scripted import vector_of

import sparsona
from sparsona.engines.inprocess import InProcess
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import Sampled
from sparsona.layout import Layout
from sparsona.message import Message
from sparsona.method import Arrival, Method, ServerContext
from sparsona.methods.fedasync import FedAsync
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.lga import LGA, PLGA, ClientState, ServerState, share
from sparsona.ops.pairwise import cosine
from sparsona.prepare import prepare
from sparsona.testing import tiny_setup

SETUP = tiny_setup(LGA())
LAYOUT = SETUP.task.layout
SIZE = LAYOUT.size


def noise(seed: int, scale: float = 0.1) -> np.ndarray:
    return (scale * np.random.default_rng(seed).normal(size=SIZE)).astype(np.float32)


START, AFTER, NOW, DELTA = noise(1), noise(2), noise(3), noise(4)


def answer(client: str, trained: np.ndarray, start: np.ndarray, round: int = 0) -> Arrival:
    return Arrival(client, Message(weights=trained, examples=5), round, lambda: Message(weights=start))


def late(method: LGA | PLGA, trained: np.ndarray, now: np.ndarray = NOW) -> ServerState:
    """The server after the reply of a client that started three rounds ago."""
    server = ServerState(now, after={"c0": AFTER})
    return method.aggregate(server, [answer("c0", trained, START)], ServerContext(SETUP.task, 3))


def shares_of(layout: Layout) -> np.ndarray:
    out = np.zeros(SIZE)
    for t in layout.tensors:
        out[t.slice] = share(cosine((AFTER - START)[t.slice], DELTA[t.slice]))
    return out


def test_shares_of_a_cosine() -> None:
    assert share(1.0) == 0.5
    assert share(0.0) == pytest.approx(0.26894, abs=1e-5)
    assert share(-1.0) == pytest.approx(0.11920, abs=1e-5)


@pytest.mark.parametrize("eq", [10, 11])
def test_a_late_model_is_corrected_by_the_equation(eq: Any) -> None:
    s, base = shares_of(LAYOUT), NOW if eq == 11 else START
    wanted = base + s * DELTA * DELTA * (NOW - AFTER) + DELTA
    assert np.allclose(late(LGA(eq=eq), START + DELTA).weights, wanted, atol=1e-6)


def test_the_switches_of_the_correction() -> None:
    c = np.concatenate([
        np.full(t.size, cosine((AFTER - START)[t.slice], DELTA[t.slice])) for t in LAYOUT.tensors
    ])  # fmt: skip
    term = DELTA * DELTA * (NOW - AFTER)
    raw = late(LGA(raw=True), START + DELTA).weights
    assert np.allclose(raw, NOW + c * term + DELTA, atol=1e-6)
    scaled = late(LGA(lambda_dc=100.0), START + DELTA).weights
    assert np.allclose(scaled, NOW + 100 * shares_of(LAYOUT) * term + DELTA, atol=1e-5)
    none = late(LGA(lambda_dc=0.0), START + DELTA).weights
    assert np.allclose(none, NOW + DELTA, atol=1e-6)
    staged = late(LGA(per="stages", lambda_dc=100.0), START + DELTA).weights
    assert not np.allclose(staged, scaled, atol=1e-6)
    whole = late(LGA(per="net", lambda_dc=100.0), START + DELTA).weights
    assert np.allclose(whole, NOW + 100 * share(cosine(AFTER - START, DELTA)) * term + DELTA, atol=1e-5)


def test_a_client_that_learned_nothing_is_the_model_of_today() -> None:
    assert np.array_equal(late(LGA(), START).weights, NOW)


def test_one_round_late_needs_no_correction() -> None:
    first = ServerState(START)
    busy = ServerContext(SETUP.task, 0, unanswered=frozenset({"c0"}))
    server = LGA().aggregate(first, [answer("c1", AFTER, START)], busy)
    assert set(server.after) == {"c0"}
    assert np.array_equal(server.after["c0"], AFTER)
    reply = [answer("c0", START + DELTA, START)]
    out = LGA(lambda_dc=1e6).aggregate(server, reply, ServerContext(SETUP.task, 1))
    assert np.array_equal(out.weights, AFTER + (START + DELTA - START))
    assert out.term["c0"] == 0.0


def test_the_size_of_the_correction_is_noted() -> None:
    out = late(LGA(), START + DELTA)
    term = shares_of(LAYOUT) * DELTA * DELTA * (NOW - AFTER)
    assert out.term["c0"] == pytest.approx(np.linalg.norm(term) / np.linalg.norm(DELTA), rel=1e-3)
    assert out.term["c0"] < 0.05, "erratum 14: next to nothing"


def test_the_personal_model_of_a_late_client_is_mixed_by_the_server() -> None:
    out = late(PLGA(), START + DELTA)
    s = shares_of(LAYOUT)
    corrected = NOW + s * DELTA * DELTA * (NOW - AFTER) + DELTA
    wanted = START + (1 - s) * (corrected - START) + s * (NOW - START)
    assert np.allclose(out.personal["c0"], wanted, atol=1e-6)
    again = PLGA().aggregate(out, [answer("c0", NOW, out.weights, 4)], ServerContext(SETUP.task, 4))
    assert again.personal == {}, "dropped when used"


def test_a_corrected_model_that_is_the_model_of_today_stays_so() -> None:
    assert np.array_equal(late(PLGA(), START).personal["c0"], NOW)


def test_the_personal_model_of_a_client_on_time_is_its_own_affair() -> None:
    client, down = ClientState(START, START + DELTA), Message(weights=AFTER)
    local: Any = type("L", (), {"layout": LAYOUT})()
    found = PLGA().personal_model(client, down, local)
    s = shares_of(LAYOUT)
    assert np.allclose(found, START + (1 - s) * DELTA + s * (AFTER - START), atol=1e-6)
    assert np.array_equal(PLGA().personal_model(ClientState(), down, local), AFTER)


@pytest.mark.parametrize("method", ["plga", "lga", "fedavg-stale", "fedavg-drop"])
def test_with_nobody_late_the_server_is_fedavgs_bit_for_bit(method: str) -> None:
    def weights(name: str) -> np.ndarray:
        prepared = prepare({"method": name, "clients": 5, "rounds": 4, "seed": 3})
        loop = rounds_of(prepared.setup.method, prepared.setup, Sampled())
        found: np.ndarray = loop.server.weights
        return found

    assert np.array_equal(weights(method), weights("fedavg"))


def rounds_of(method: Method[Any, Any], setup: Any = None, schedule: Sampled | None = None, rounds: int = 9) -> Rounds:
    setup = setup or tiny_setup(method, rounds=rounds)
    schedule = (schedule or Sampled(stragglers=2)).among(setup.task.clients)
    loop = assemble(setup, InProcess(setup), schedule, LAST_ROUND)
    loop.run()
    return loop


def test_what_the_server_keeps_for_late_clients_is_bounded_and_dropped() -> None:
    kept = []

    class Watched(LGA):
        """LGA, watched."""

        def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
            out = super().aggregate(server, arrivals, context)
            assert set(out.after) == context.unanswered
            kept.append(len({id(model) for model in out.after.values()}))
            return out

    loop = rounds_of(Watched(), rounds=12)
    assert 1 <= max(kept) <= 2, "at most the models after the rounds that two stragglers started in"
    assert min(kept) == 0
    assert len(loop.delivery.snapshot().pending) == len(loop.server.after)


@pytest.mark.parametrize("start_from", ["global", "personalised"])
def test_a_personal_model_is_dropped_once_its_client_is_at_work_again(start_from: Any) -> None:
    """Twelve phones and a short window: what is kept is what the late replies of this very merge were given."""
    kept, given = [], set()

    class Watched(PLGA):
        """PLGA, watched."""

        def send(self, server: ServerState, to: str, context: ServerContext) -> Message:
            message = super().send(server, to, context)
            if "personal" in message:
                given.add(to)
            return message

        def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
            out = super().aggregate(server, arrivals, context)
            late = {a.client for a in arrivals if not np.array_equal(a.sent.vector("weights"), server.weights)}
            assert set(out.personal) == late
            assert late <= {a.client for a in arrivals if a.round < context.round}
            assert not set(out.personal) & context.unanswered
            kept.append(len(out.personal))
            return out

    method = Watched(start_from=start_from)
    setup = tiny_setup(method, clients=12, rounds=60)
    rounds_of(method, setup, Sampled(window=0.004))
    assert given == set(setup.task.clients), "everyone was late, and got its own"
    assert 0 < max(kept) < 6, "fewer than half at once"


def test_a_personal_model_stays_until_its_client_has_got_it() -> None:
    out = late(PLGA(), START + DELTA)
    other = [answer("c1", NOW, out.weights, 4)]
    idle = PLGA().aggregate(out, other, ServerContext(SETUP.task, 4))
    assert np.array_equal(idle.personal["c0"], out.personal["c0"]), "not asked, or its reply was lost"
    busy = PLGA().aggregate(out, other, ServerContext(SETUP.task, 4, unanswered=frozenset({"c0"})))
    assert busy.personal == {}


def test_dropping_used_personal_models_changes_no_result() -> None:
    class Hoarding(PLGA):
        """PLGA that keeps every personal model until the next reply of its client."""

        def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
            out = super().aggregate(server, arrivals, context)
            there = {a.client for a in arrivals}
            return replace(out, personal=server.personal.without(there) | out.personal)

    scores, weights = [], []
    for method in (PLGA(start_from="personalised"), Hoarding(start_from="personalised")):
        loop = rounds_of(method, tiny_setup(method, clients=6, rounds=10), Sampled(window=0.02))
        scores.append(loop.run_log.scores)
        weights.append(loop.server.weights)
    assert len(loop.server.personal) > 3, "the other one hoards"
    assert scores[0] == scores[1]
    assert np.array_equal(*weights)


def test_a_round_in_which_nothing_arrives_changes_no_model() -> None:
    """Everyone is late: nothing came after the model that they started from, so there is nothing to correct."""
    schedule = Sampled(stragglers={"c0": 2, "c1": 2, "c2": 2})
    loop = rounds_of(LGA(), schedule=schedule, rounds=4)
    plain = rounds_of(FedAvg(late="average"), schedule=schedule, rounds=4)
    assert np.allclose(loop.server.weights, plain.server.weights, atol=1e-6)
    assert not np.array_equal(loop.server.weights, SETUP.task.initial)


def test_late_models_are_averaged_or_dropped() -> None:
    weights = SETUP.task.initial
    arrivals = [
        Arrival("c0", Message(weights=START, examples=1), 0),
        Arrival("c1", Message(weights=NOW, examples=3), 2),
    ]
    context = ServerContext(SETUP.task, 2)
    from sparsona.ops.server import ServerState as Plain

    stale = FedAvg(late="average").aggregate(Plain(weights), arrivals, context).weights
    assert np.allclose(stale, (START + 3 * NOW) / 4, atol=1e-6)
    assert np.array_equal(FedAvg(late="drop").aggregate(Plain(weights), arrivals, context).weights, NOW)
    assert np.array_equal(FedAvg(late="drop").aggregate(Plain(weights), arrivals[:1], context).weights, weights)


def test_fedasync_takes_models_in_one_by_one() -> None:
    from sparsona.methods.fedasync import ServerState as State

    replies = [
        Arrival("c0", Message(weights=START, examples=1), 1, lambda: Message(version=5)),
        Arrival("c1", Message(weights=AFTER, examples=9), 0, lambda: Message(version=2)),
    ]
    out = FedAsync().aggregate(State(NOW, 5), replies, ServerContext(SETUP.task, 1))
    x = 0.4 * NOW + 0.6 * START
    late = 0.6 * (1 + 6 - 2) ** -0.5
    assert np.allclose(out.weights, (1 - late) * x + late * AFTER, atol=1e-6)
    assert out.version == 7
    code = FedAsync(variant="repository").aggregate(State(NOW, 5), replies, ServerContext(SETUP.task, 1))
    s = 0.8 / np.sqrt(2)
    wanted = (0.8 * START + 0.2 * NOW + 9 * (s * AFTER + (1 - s) * NOW)) / 10
    assert np.allclose(code.weights, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "late", "share"),
    [
        (FedAsync("constant"), 50, 0.6),
        (FedAsync("polynomial", a=1.0), 2, 0.2),
        (FedAsync("hinge"), 4, 0.6),
        (FedAsync("hinge"), 5, 0.6 / 11),
        (FedAsync("hinge", a=1.0, b=0.0), 2, 0.2),
    ],
)
def test_staleness(method: FedAsync, late: int, share: float) -> None:
    assert method.share(late) == pytest.approx(share)


def test_stragglers_hurt_those_who_drop_them() -> None:
    """Three of four clients answer a round late and each has classes of its own. Whoever drops what is late learns only
    what the punctual one knows; unless late ones are absent instead, and answer on time when they are there. All are
    read after a round in which everyone's answer has come."""
    late = {"c0": 1, "c1": 1, "c2": 1}

    def score(method: str, rounds: int, straggling: str) -> float:
        found = sparsona.run(
            method, data="digits", clients=4, partition="classes:3:own", rounds=rounds, evaluation={"every": 0},
            schedule={"stragglers": late, "straggling": straggling},
        )  # fmt: skip
        mean: float = found.summary["accuracy"]["pre"]["mean"]
        return mean

    assert score("lga", 10, "late") > score("fedavg-drop", 10, "late") + 0.1
    assert score("fedavg-stale", 10, "late") > score("fedavg-drop", 10, "late") + 0.1
    assert score("fedavg-drop", 11, "absent") > score("fedavg-drop", 11, "late") + 0.1


def test_plga_is_measured_at_its_mixture() -> None:
    shared: dict[str, Any] = {
        "data": "digits",
        "clients": 6,
        "rounds": 6,
        "schedule": {"stragglers": 3},
        "evaluation": {"every": 0},
    }
    found, plain = sparsona.run("plga", **shared), sparsona.run("lga", **shared)
    assert found.summary["accuracy"]["pre"]["mean"] > plain.summary["accuracy"]["pre"]["mean"]
    assert found.summary["accuracy"]["post"] == plain.summary["accuracy"]["post"], "the server is the same"
    one, other = (vector_of(found.models[client].model) for client in ("c4", "c5"))
    assert not np.array_equal(one, other)


def test_start_from_the_personal_model() -> None:
    shared: dict[str, Any] = {"data": "digits", "clients": 4, "rounds": 3}
    one = sparsona.run(PLGA(), **shared)
    other = sparsona.run(replace(PLGA(), start_from="personalised"), **shared)
    assert one.summary["digest"] != other.summary["digest"]
