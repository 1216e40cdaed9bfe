"""pFedNet: exact against closed forms and simpler methods, honest in its bytes, whole after loss and delay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.chance import Chance
from sparsona.engines.inprocess import InProcess
from sparsona.errors import InputError
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import EVERYONE, Plan, Schedule
from sparsona.message import Levels, Message
from sparsona.method import Arrival, ClientGraph, ClientId, ServerContext
from sparsona.methods.pfednet import PFedNet, ServerState
from sparsona.methods.pfednet.mixture import mixture_of
from sparsona.testing import check_method, tiny_setup
from sparsona.wire import Ledger, decode

DIGITS: dict[str, Any] = {"data": "digits", "clients": 4, "rounds": 3, "evaluation": {"every": 0}}


def rounds_of(method: PFedNet, clients: int = 3, rounds: int = 3, schedule: Schedule = EVERYONE) -> Rounds:
    setup = tiny_setup(method, clients, rounds)
    return assemble(setup, InProcess(setup), schedule, LAST_ROUND)


def models_of(result: sparsona.Result) -> np.ndarray:
    return np.stack([np.asarray(m.model) for _, m in sorted(result.models.items())])


@pytest.mark.parametrize(
    "method",
    [
        PFedNet(layout="split", gamma=0.1, p=1, weights=True, sketch="cov"),
        PFedNet(layout="additive", levels=3, p="inf", sketch="kernel", noise=0.1, weighting="samples"),
        PFedNet(lam=0.0, gamma=1.0, gamma_unit="median", scope="model", pin_end=False, local_steps=False, decay="sqrt"),
    ],
)
def test_the_contract_holds_for_its_variants(method: PFedNet) -> None:
    check_method(method)


def test_without_a_penalty_it_is_local_training() -> None:
    ours, alone = sparsona.run(PFedNet(lam=0.0, levels=0), **DIGITS), sparsona.run("local", **DIGITS)
    np.testing.assert_allclose(models_of(ours), models_of(alone), atol=1e-4)


@pytest.mark.parametrize("eta", [0.1, 0.7])
def test_under_a_large_penalty_it_is_federated_averaging(eta: float) -> None:
    """All models are one, and it is the plain mean of what the clients trained, whatever eta."""
    method = PFedNet(lam=1e4, k=9, eta=eta, levels=0, iterations=2000, tolerance=1e-7)
    result = sparsona.run(method, **{**DIGITS, "partition": "iid", "rounds": 2})
    models = models_of(result)
    np.testing.assert_allclose(models, np.tile(models.mean(0), (4, 1)), atol=1e-4)
    average = sparsona.run("fedavg", **{**DIGITS, "partition": "iid", "rounds": 2})
    np.testing.assert_allclose(models[0], models_of(average)[0], atol=2e-3)  # clients differ by a sample


def merged(
    method: PFedNet, updates: Mapping[ClientId, Any], server: ServerState | None = None
) -> tuple[ServerState, ServerState]:
    """The server before and after it gets these updates from clients whose sketches it has."""
    task = tiny_setup(method, max(len(updates), 2)).task
    if server is None:
        corners = ((client, np.array([i, 0, 0, 0], np.float32)) for i, client in enumerate(task.clients))
        sketches = [Arrival(client, Message(sketch=corner), 0) for client, corner in corners]
        server = method.aggregate(method.start_server(task), sketches, ServerContext(task, 0))
    replies = [Arrival(c, Message(update=Levels((task.layout.size,), u)), 0) for c, u in sorted(updates.items())]
    return server, method.aggregate(server, replies, ServerContext(task, 0))


@pytest.mark.parametrize("lam", [0.0, 0.5, 2.0, 1e3])
def test_two_clients_in_the_terms_of_the_paper(lam: float) -> None:
    """z_1 - z_2 = (1 - 2 eta lam / |delta|)_+ delta and z_1 + z_2 = b_1 + b_2 with b = z - eta g / N."""
    method = PFedNet(lam=lam, eta=0.2, z_step="paper", iterations=5000, tolerance=1e-8)
    rng = np.random.default_rng(0)
    size = tiny_setup(method, 2).task.layout.size
    g = {c: rng.normal(size=size).astype(np.float32) for c in ("c0", "c1")}
    before, after = merged(method, g)
    b = before.z - 0.2 * np.stack([g["c0"], g["c1"]]) / 2
    delta = b[0] - b[1]
    shrink = max(0.0, 1 - 2 * 0.2 * lam / float(np.linalg.norm(delta)))
    np.testing.assert_allclose(after.z[0] - after.z[1], shrink * delta, atol=1e-4)
    np.testing.assert_allclose(after.z.sum(0), b.sum(0), atol=1e-4)


def test_the_shared_step_is_over_those_who_answered_and_absent_models_move_with_their_neighbours() -> None:
    method = PFedNet(lam=0.3, layout="additive", eta=0.1)
    task = tiny_setup(method, 3).task
    g = np.random.default_rng(1).normal(size=task.layout.size).astype(np.float32)
    before, after = merged(method, {"c0": g, "c1": 3 * g, "c2": g})
    np.testing.assert_allclose(after.x - before.x, -0.1 * 5 / 3 * g, atol=1e-6)
    _, without = merged(method, {"c0": g, "c1": 3 * g}, before)
    np.testing.assert_allclose(without.x - before.x, -0.1 * 2 * g, atol=1e-6)
    pulled = without.z[2] - before.z[2]
    assert float(pulled @ g) < 0, "c2 did not answer, but its neighbours' models pull its own along"


def test_weights_by_samples() -> None:
    method = PFedNet(layout="additive", lam=0.0, weighting="samples")
    task = tiny_setup(method, 2).task
    size = task.layout.size
    server = merged(PFedNet(layout="additive", lam=0.0), {"c0": np.zeros(size), "c1": np.zeros(size)})[0]
    parts = {"c0": (30, 1.0), "c1": (10, 5.0)}
    replies = [
        Arrival(c, Message(update=Levels((size,), np.full(size, g, np.float32)), examples=n), 0)
        for c, (n, g) in parts.items()
    ]
    after = method.aggregate(server, replies, ServerContext(task, 0))
    np.testing.assert_allclose(after.x - server.x, -0.1 * (30 * 1 + 10 * 5) / 40, atol=1e-6)


@dataclass(frozen=True)
class Unruly:
    """Some are sampled, some crash, some replies are lost, some are late."""

    def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
        rng = chance.rng("unruly", round=round)
        lots = {client: rng.choice(["gone", "crash", "lost", "late", "well", "well"]) for client in sorted(idle)}
        here = tuple(c for c, lot in lots.items() if lot != "gone") or tuple(lots)
        return Plan(
            here,
            crashed=frozenset(c for c in here if lots[c] == "crash"),
            lost=frozenset(c for c in here if lots[c] == "lost"),
            delay={c: 1 + round % 2 for c in here if lots[c] == "late"},
        )


@pytest.mark.parametrize(
    "method", [PFedNet(), PFedNet(layout="split", gamma=0.5), PFedNet(layout="additive", lam=0.0, levels=3)]
)
def test_copies_stay_equal_to_the_bit_though_replies_are_lost_and_late(method: PFedNet) -> None:
    rounds = rounds_of(method, clients=5, rounds=12, schedule=Unruly())
    mixture = mixture_of(method.layout, rounds.setup.task.layout)

    def compare(_: object) -> None:
        state, network = rounds.server, rounds.server.network
        for outcome in rounds.finish("personal", network.clients):
            row = network.row(outcome.client)
            expected = np.zeros(mixture.size, np.float32)
            expected[mixture.shared] = state.x
            expected[mixture.own] += state.z[row]
            assert np.asarray(outcome.model).tobytes() == expected.tobytes()

    rounds.run(compare)
    assert len(rounds.server.network.clients) == 5, "everybody has been met in the end"
    down = sum((report.down for report in rounds.run_log.rounds), Ledger())
    assert 0 < down.against < down.against_plain, "and many were served by a difference"


def test_a_difference_is_shorter_than_the_whole() -> None:
    result = sparsona.run(PFedNet(), **{**DIGITS, "rounds": 6})
    whole = result.summary["paper_bytes"]["down"]
    assert result.summary["bytes"]["down"] < 0.85 * whole
    assert result.history[0].paper_down == 0, "at first everybody has the initial model"
    assert result.history[0].down.total == result.history[0].down.header < 8 * 16, "two orders each, and no part"


def test_the_sketch_exchange_costs_bytes_and_happens_once() -> None:
    small = sparsona.run(PFedNet(lam=0.0, sketch="label"), **DIGITS).history
    large = sparsona.run(PFedNet(lam=0.0, sketch="model"), **DIGITS).history
    assert large[0].up.total > 1.7 * small[0].up.total
    assert large[1].up.total == small[1].up.total


def test_gamma_and_levels_save_bytes() -> None:
    plain, fused, few = (
        sparsona.run(PFedNet(lam=0.0, **options), **DIGITS).summary["bytes"]
        for options in ({"levels": 0}, {"levels": 0, "gamma": 1.0, "gamma_unit": "median"}, {"levels": 4})
    )
    assert fused["up"] < 0.7 * plain["up"]
    assert few["up"] < 0.3 * plain["up"]


def test_it_saves_bytes_as_it_comes() -> None:
    plain, usual = (sparsona.run(method, **DIGITS).summary for method in (PFedNet(levels=0), PFedNet()))
    assert usual["bytes"]["up"] < 0.5 * plain["bytes"]["up"]
    assert usual["accuracy"]["pre"]["mean"] > plain["accuracy"]["pre"]["mean"] - 0.02


def test_a_lost_sketch_is_asked_for_again() -> None:
    @dataclass(frozen=True)
    class First:
        def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
            return Plan(tuple(sorted(idle)), lost=frozenset({"c1"} if round < 2 else ()))

    rounds = rounds_of(PFedNet(k=1), clients=4, rounds=3, schedule=First())
    seen = []
    rounds.run(lambda _: seen.append(rounds.server.network.clients))
    assert seen[1] == ("c0", "c2", "c3")
    assert seen[2] == ("c0", "c2", "c3", "c1")
    assert len(rounds.server.z) == 4


def test_a_newcomer_gets_the_mean_first_and_then_its_neighbours_mean() -> None:
    method = PFedNet(lam=0.0, k=1)
    task = tiny_setup(method, 3).task
    rng = np.random.default_rng(2)
    g = {c: rng.normal(size=task.layout.size).astype(np.float32) for c in task.clients}
    _, server = merged(method, g)
    down = method.send(server, "new", ServerContext(task, 1))
    assert "ask" in down
    np.testing.assert_allclose(down.vector("z"), server.z.mean(0), atol=1e-6)
    reply = Message(sketch=np.array([2.1, 0, 0, 0], np.float32), update=Levels((task.layout.size,), 0 * g["c0"]))
    joined = method.aggregate(server, [Arrival("new", reply, 1)], ServerContext(task, 1))
    np.testing.assert_array_equal(joined.z[3], server.z[2], "its nearest is c2, whose sketch is 2")
    again = method.send(joined, "new", ServerContext(task, 2))
    assert "z" in again
    assert "ask" not in again


def test_a_newcomer_sends_its_sketch_and_no_update_of_another_point() -> None:
    @dataclass(frozen=True)
    class Late:
        def plan(self, round: int, idle: Sequence[ClientId], chance: Chance) -> Plan:
            return Plan(tuple(sorted(idle)), lost=frozenset({"c1"} if round < 2 else ()))

    rounds = rounds_of(PFedNet(k=1, layout="additive", weighting="samples"), clients=3, rounds=4, schedule=Late())
    tap, sent = rounds.engine.run, []

    def run(jobs: Any) -> Any:
        for outcome in tap(jobs):
            if outcome.kind == "fit" and outcome.client == "c1":
                message = decode(outcome.frame.data, rounds.setup.limit(), rounds.setup.task.layout.lengths)
                sent.append(sorted(message.parts))
            yield outcome

    rounds.engine.run = run  # type: ignore[method-assign]
    rounds.run()
    asked = ["examples", "sketch", "update"]
    assert sent == [["sketch"], asked, ["sketch"], ["sketch"], ["examples", "update"]]


@pytest.mark.parametrize("layout", ["personal", "additive"])
def test_the_update_of_a_client_that_gets_its_row_in_this_merge_is_dropped(layout: Any) -> None:
    method = PFedNet(lam=0.0, k=1, layout=layout)
    task = tiny_setup(method, 3).task
    g = np.random.default_rng(2).normal(size=(4, task.layout.size)).astype(np.float32)
    _, server = merged(method, dict(zip(task.clients, g, strict=False)))

    def reply(client: ClientId, update: Any, **more: Any) -> Arrival:
        return Arrival(client, Message(update=Levels((task.layout.size,), update), **more), 1)

    old = [reply(c, u) for c, u in zip(task.clients, g, strict=False)]
    new = reply("late", g[3], sketch=np.array([2.1, 0, 0, 0], np.float32))
    without, joined = (method.aggregate(server, replies, ServerContext(task, 1)) for replies in (old, [*old, new]))
    np.testing.assert_array_equal(joined.x, without.x)
    np.testing.assert_array_equal(joined.z[:3], without.z)
    np.testing.assert_array_equal(joined.z[3], server.z[2], "its neighbour's, and not moved from there")
    alone = method.aggregate(server, [new], ServerContext(task, 1))
    np.testing.assert_array_equal(alone.x, server.x)
    np.testing.assert_array_equal(alone.z[3], server.z[2])


def test_the_first_update_counts_where_nothing_has_moved_yet() -> None:
    method = PFedNet(lam=0.0)
    task = tiny_setup(method, 2).task
    g = np.ones(task.layout.size, np.float32)
    reply = Message(update=Levels((task.layout.size,), g), sketch=np.zeros(4, np.float32))
    after = method.aggregate(method.start_server(task), [Arrival("c0", reply, 0)], ServerContext(task, 0))
    np.testing.assert_allclose(after.z[0], task.initial - 0.1 * g, atol=1e-6)


def opposite(wards: int, samples: int, apart: float) -> dict[str, Any]:
    """Two groups of clients, whose classes are swapped; a feature says which group it is."""
    rng = np.random.default_rng(4)
    out = {}
    for i in range(wards):
        x = rng.normal(size=(samples, 20)).astype(np.float32)
        flip = i % 2
        y = ((x[:, :3].sum(1) > 0) ^ flip).astype(np.int64)
        x[:, 19] = apart * (2.0 * flip - 1) + 0.1 * x[:, 19]
        out[f"w{i}"] = (x, y)
    return out


@pytest.mark.parametrize("engine", ["inprocess", "pool"])
def test_clients_that_join_after_training_get_their_groups_model(engine: str, tmp_path: Path) -> None:
    result = sparsona.run(
        PFedNet(lam=0.05, sketch="mean", k=2), data=opposite(8, 60, 2.0), model="logistic", rounds=15, engine=engine,
        new_clients=0.25, split={"test": 0.5, "validation": 0.0}, training={"lr": 0.1, "batch": 8},
        evaluation={"every": 0}, out=tmp_path / "run",
    )  # fmt: skip
    new, network = result.summary["new_clients"], result.artefacts["network"]
    assert isinstance(network, ClientGraph)
    assert new["accuracy"]["pre"]["worst"] > 0.85, "of the other group's model it would be under 0.2"
    assert result.summary["clients"] == len(result.models) == 6
    assert len(network.clients) == 8
    named = [(network.clients[i], network.clients[j]) for i, j in network.edges]
    assert named
    assert all(int(a[1]) % 2 == int(b[1]) % 2 for a, b in named)
    assert 2 * 4 * 20 < new["bytes"]["up"] < 2 * 4 * 20 + 100, "two sketches of 20 numbers"
    assert 2 * 4 * 42 * 0.8 < new["bytes"]["down"] < 2 * 4 * 42 + 100, "two models of 42"


def test_one_gradient_a_round_is_a_gradient_step() -> None:
    rounds = rounds_of(PFedNet(lam=0.0, levels=0, local_steps=False, eta=0.3, decay="sqrt"), clients=2, rounds=2)
    setup, states = rounds.setup, []
    rounds.run(lambda _: states.append(rounds.server))
    from sparsona.training.local import Local
    from sparsona.training.runner import ModelRunner

    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    y = setup.task.initial
    for t in range(2):
        local = Local("c0", t, setup.task, setup.config, setup.federation.splits["c0"], runner)
        y = y - np.float32(0.3 / np.sqrt(t + 1)) * local.gradient(y, setup.config.batch)
        np.testing.assert_allclose(states[t].z[0], y, atol=1e-6)


def test_buffers_stay_with_the_personal_model() -> None:
    from torch import nn

    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
    result = sparsona.run(PFedNet(lam=0.001), model=module, **DIGITS)
    tensors = [m.tensors() for m in result.models.values()]
    assert np.abs(tensors[0]["2.running_mean"]).max() > 1e-3
    assert np.abs(tensors[0]["2.running_mean"] - tensors[1]["2.running_mean"]).max() > 1e-3
    assert (tensors[0]["4.weight"] != tensors[1]["4.weight"]).any()


def test_a_split_shares_the_trunk() -> None:
    result = sparsona.run(PFedNet(layout="split", own="fc2"), model="mlp", **DIGITS)
    one, other = (m.tensors() for m in list(result.models.values())[:2])
    np.testing.assert_array_equal(one["fc1.weight"], other["fc1.weight"])
    assert (one["fc2.weight"] != other["fc2.weight"]).any()


def test_errors_name_the_fix() -> None:
    with pytest.raises(InputError, match="no layer or tensor 'tail'"):
        sparsona.run(PFedNet(layout="split", own="tail"), **DIGITS)
    with pytest.raises(InputError, match="p: input should be 1, 2 or 'inf'"):
        sparsona.run("pfednet", options={"p": 3}, **DIGITS)
    wards = {w: (np.zeros((20, 3), np.float32), np.linspace(0, 1, 20, dtype=np.float32)) for w in ("east", "west")}
    with pytest.raises(InputError, match="choose sketch=mean"):
        sparsona.run("pfednet", data=wards, model="mlp", rounds=1)


def test_neighbours_help_when_data_are_few_and_alike_in_groups() -> None:
    """Where labels are opposite, neither alone nor all together is best."""
    wards = opposite(8, 24, 1.0)
    shared: dict[str, Any] = {"data": wards, "model": "logistic", "rounds": 30, "evaluation": {"every": 0}}
    shared |= {"split": {"test": 0.5, "validation": 0.0}, "training": {"lr": 0.1, "batch": 8}}
    ours = sparsona.run(PFedNet(lam=0.05, sketch="mean"), **shared).summary["accuracy"]["pre"]["mean"]
    alone = sparsona.run("local", **shared).summary["accuracy"]["pre"]["mean"]
    together = sparsona.run("fedavg", **shared).summary["accuracy"]["pre"]["mean"]
    assert ours > max(alone, together) + 0.03
