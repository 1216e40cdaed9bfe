"""SPFL and SPFL-w: the exact tests of their specification."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scripted import vector_of
from torch import nn

import sparsona
from sparsona.by_client import ByClient
from sparsona.chance import Chance
from sparsona.engines.inprocess import InProcess
from sparsona.federation.delivery import PendingReply
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.gate import Arrivals
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import EVERYONE, Plan, Sampled, Schedule
from sparsona.federation.setup import Setup
from sparsona.layout import Layout
from sparsona.message import Message
from sparsona.method import Arrival, ClientMatrices, Method, ServerContext
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.spfl import MEASURE, SPFL, Replies, ServerState, SPFLw, sorted_out
from sparsona.models import MODELS
from sparsona.ops import pairwise
from sparsona.ops.pairwise import Matrix, Similarity, cosines, row_softmax
from sparsona.testing import tiny_setup
from sparsona.wire import Limit, decode, encode


def train(setup: Setup, schedule: Schedule = EVERYONE) -> Rounds:
    loop = assemble(setup, InProcess(setup), schedule, LAST_ROUND)
    loop.run()
    return loop


def state_of(setup: Setup, similarity: Similarity, spread: float = 0.0) -> ServerState:
    start = setup.task.initial
    rng = np.random.default_rng(1)
    models = {k: (start + spread * rng.normal(size=len(start))).astype(np.float32) for k in setup.task.clients}
    return ServerState(start, start, ByClient(models), similarity)


def updates_of(setup: Setup) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    size = setup.task.layout.size
    return {k: rng.normal(size=size).astype(np.float32) for k in setup.task.clients}


def arrivals_of(server: ServerState, updates: Mapping[str, np.ndarray]) -> list[Arrival]:
    """Replies of clients that have moved by these updates from what they were sent."""

    def reply(client: str, update: np.ndarray) -> Arrival:
        start = server.model(client)
        return Arrival(client, Message(weights=start + update, examples=10), 1, lambda: Message(weights=start))

    return [reply(client, update) for client, update in updates.items()]


def mixed(method: SPFL | SPFLw, setup: Setup, server: ServerState) -> dict[str, np.ndarray]:
    """The models that `method` makes of `updates_of`."""
    found = sorted_out(arrivals_of(server, updates_of(setup)), setup.task.layout.size)[1]
    return method.mixed(server, found, setup.task.layout)


def test_similarity_is_symmetric_with_a_unit_diagonal_and_its_shares_are_shares() -> None:
    result = sparsona.run("spfl", clients=4, rounds=1)
    found = result.artefacts["similarity"]
    assert isinstance(found, ClientMatrices)
    assert set(found.stages) == {"base", "head"}
    for matrix in found.stages.values():
        assert (matrix == matrix.T).all()
        assert np.allclose(np.diag(matrix), 1)
        assert np.allclose(row_softmax(matrix).sum(1), 1)


@pytest.mark.parametrize(
    "method", [SPFL(), SPFL(head="mixed"), SPFLw(), SPFL(gamma=2, cosine="concat"), SPFL(cosine="net")]
)
def test_identical_clients_are_fedavg_for_ever(method: Method[Any, Any]) -> None:
    """Same data, same batches: all updates are equal, so every mixture is the mean."""

    class Same(Chance):
        def rng(self, purpose: str, *, round: int = 0, client: str = "", layer: int = 0) -> np.random.Generator:
            return super().rng(purpose, round=round, client="", layer=layer)

    def same(method: Method[Any, Any]) -> Rounds:
        setup = tiny_setup(method, rounds=4)
        first = setup.federation.splits["c0"]
        federation = replace(setup.federation, splits=dict.fromkeys(setup.task.clients, first))
        task = replace(setup.task, chance=Same(11))
        config = replace(setup.config, repeats=2)
        return train(replace(setup, federation=federation, task=task, config=config))

    ours, plain = same(method), same(FedAvg())
    for model in ours.server.models.values():
        assert np.allclose(model, plain.server.weights, atol=2e-6)


def test_uniform_shares_add_the_mean_update() -> None:
    setup = tiny_setup(SPFL(head="mixed"))
    server = state_of(setup, Similarity((), {}), spread=0.1)
    models = mixed(SPFL(head="mixed"), setup, server)
    mean = np.mean(list(updates_of(setup).values()), axis=0)
    for client, model in models.items():
        assert np.allclose(model, server.models[client] + mean, atol=1e-6)


def test_the_own_head_moves_by_the_clients_own_update_only() -> None:
    setup = tiny_setup(SPFL())
    server = state_of(setup, Similarity((), {}))
    models = mixed(SPFL(), setup, server)
    head = setup.task.layout["5.weight"].slice
    for client, update in updates_of(setup).items():
        moved = models[client] - server.models[client]
        assert np.allclose(moved[head], update[head], atol=1e-6)
        assert not np.allclose(moved[: head.start], update[: head.start], atol=1e-2)


def test_the_printed_equation_7_makes_a_step_n_times_shorter_and_alpha_on_top() -> None:
    setup = tiny_setup(SPFL())
    server = state_of(setup, Similarity((), {}))
    ours = mixed(SPFL(head="mixed"), setup, server)
    printed = mixed(SPFL(head="mixed", paper_eq7=True), setup, server)
    for client in setup.task.clients:
        start = server.models[client]
        ratio = np.linalg.norm(printed[client] - start) / np.linalg.norm(ours[client] - start)
        assert ratio == pytest.approx(0.01 / 3, rel=1e-3)


def tensor_cosines(updates: list[np.ndarray], layout: Layout, *names: str) -> list[Matrix]:
    return [cosines(updates, [[layout[f"{name}.weight"].slice]])[0] for name in names]


def test_the_papers_net_mixes_its_tensors_cosines_by_the_codes_constants() -> None:
    layout = Layout.of(MODELS.get("spfl-cnn")((1, 28, 28), 10))
    rng = np.random.default_rng(5)
    found = [rng.normal(size=layout.size).astype(np.float32) for _ in range(4)]
    conv1, conv2, fc1, fc2 = tensor_cosines(found, layout, *layout.layers)
    ours = SPFL().similarities(found, layout)
    assert np.allclose(ours["base"], 0.5 * conv1 + 0.3 * conv2 + 0.2 * fc1, atol=1e-12)
    assert np.allclose(ours["head"], fc2, atol=1e-12)
    replies = Replies(("a", "b", "c", "d"), (1, 1, 1, 1), found)
    whole = SPFLw().measured(Similarity((), {}), replies, layout).stages["whole"]
    assert np.allclose(whole, 0.4 * conv1 + 0.2 * conv2 + 0.2 * fc1 + 0.2 * fc2, atol=1e-12)


def test_spfl_w_keeps_six_tenths_of_the_old_similarity() -> None:
    old, new = np.array([[1, 0.5], [0.5, 1]]), np.array([[1, -0.5], [-0.5, 1]])
    before = Similarity(("a", "b"), {"whole": old})
    after = before.updated(("a", "b"), {"whole": new}, SPFLw().keep)
    assert after.stages["whole"][0, 1] == pytest.approx(0.6 * 0.5 - 0.4 * 0.5)
    assert before.updated(("a", "b"), {"whole": new}).stages["whole"][0, 1] == -0.5


def test_a_second_measurement_is_smoothed_in_the_run() -> None:
    """SPFL-w's similarity after two measuring passes holds six tenths of the first one."""
    first, second = (train(tiny_setup(SPFLw(gamma=1, keep=keep), rounds=2)) for keep in (0.0, 0.6))
    once = train(tiny_setup(SPFLw(gamma=1), rounds=1))
    fresh, kept, old = (loop.server.similarity.stages["whole"] for loop in (first, second, once))
    assert np.allclose(kept, 0.6 * old + 0.4 * fresh, atol=1e-9)
    assert not np.allclose(kept, fresh, atol=1e-3)


def test_other_nets_take_the_mean_of_their_tensors_or_one_cosine_a_stage() -> None:
    layout = tiny_setup(SPFL()).task.layout
    found = list(updates_of(tiny_setup(SPFL())).values())
    conv, fc, head = tensor_cosines(found, layout, "0", "3", "5")
    ours = SPFL().similarities(found, layout)
    assert np.allclose(ours["base"], (conv + fc) / 2, atol=1e-12)
    assert np.allclose(ours["head"], head, atol=1e-12)
    (base,) = cosines(found, [[slice(0, layout["5.weight"].start)]])
    assert np.allclose(SPFL(cosine="concat").similarities(found, layout)["base"], base, atol=1e-12)


def test_one_cosine_over_the_net_serves_both_stages() -> None:
    layout = tiny_setup(SPFL()).task.layout
    found = list(updates_of(tiny_setup(SPFL())).values())
    (whole,) = cosines(found, [[slice(0, layout.size)]])
    ours = SPFL(cosine="net").similarities(found, layout)
    assert np.allclose(ours["base"], whole, atol=1e-12)
    assert np.allclose(ours["head"], whole, atol=1e-12)
    assert not np.allclose(SPFL(cosine="concat").similarities(found, layout)["head"], whole, atol=1e-3)


def test_weights_are_mixed_by_the_same_shares() -> None:
    setup = tiny_setup(SPFLw())
    rng = np.random.default_rng(3)
    (matrix,) = cosines([rng.normal(size=9).astype(np.float32) for _ in range(3)], [[slice(0, 9)]])
    server = state_of(setup, Similarity(setup.task.clients, {"whole": matrix}), spread=0.1)
    models = mixed(SPFLw(), setup, server)
    trained = np.stack([server.models[client] + update for client, update in updates_of(setup).items()])
    for row, client in zip(row_softmax(matrix), setup.task.clients, strict=True):
        assert np.allclose(models[client], row @ trained, atol=1e-6)


def test_only_those_who_answer_are_mixed_and_the_others_stay() -> None:
    setup = tiny_setup(SPFL())
    server = state_of(setup, Similarity((), {}), spread=0.1)
    turn = ServerContext(setup.task, 1)
    updates = {client: update for client, update in updates_of(setup).items() if client != "c2"}
    after = SPFL(head="mixed").aggregate(server, arrivals_of(server, updates), turn)
    assert np.array_equal(after.models["c2"], server.models["c2"])
    mean = np.mean(list(updates.values()), axis=0)
    assert np.allclose(after.models["c0"], server.models["c0"] + mean, atol=1e-6)
    assert np.allclose(after.mean, np.mean(list(after.models.values()), axis=0), atol=1e-6)


def test_one_client_alone_is_local_training() -> None:
    alone: dict[str, Any] = {"data": "digits", "clients": 1, "partition": "iid", "rounds": 3}
    ours = sparsona.run("spfl", **alone, options={"steps": "one"})
    plain = sparsona.run("local", **alone)
    assert np.allclose(vector_of(ours.models["c0"].model), vector_of(plain.models["c0"].model), atol=1e-5)


def test_measuring_costs_a_model_each_way_and_its_work_is_thrown_away() -> None:
    result = sparsona.run("spfl", clients=3, rounds=3, options={"gamma": 2})
    first, second, third = (r.paper_up for r in result.history)
    weights = 4 * result.summary["weights"]
    assert (first, second, third) == (6 * weights, 3 * weights, 6 * weights)
    assert [r.paper_down for r in result.history] == [6 * weights, 3 * weights, 6 * weights]


def test_the_models_that_are_measured_at_the_end_are_personal() -> None:
    """The round after the last would begin with averaging: what is tested and saved must not."""
    result = sparsona.run("spfl", clients=3, rounds=2, options={"gamma": 2})
    assert not np.array_equal(vector_of(result.models["c0"].model), vector_of(result.models["c1"].model))


def test_a_measuring_pass_starts_from_the_mean_and_everyone_goes_on_from_there() -> None:
    loop = train(tiny_setup(SPFL(gamma=1, head="mixed"), rounds=1))
    second = tiny_setup(SPFL(gamma=1, head="mixed"), rounds=2)
    again = train(second)
    assert np.allclose(again.server.common, np.mean(list(loop.server.models.values()), axis=0), atol=1e-6)
    assert again.server.similarity.clients == second.task.clients


def test_with_sampling_pairs_that_never_met_count_as_unlike() -> None:
    """c0 and c2 are never there together: their cell is 0, the cells of those who met are not."""

    @dataclass(frozen=True)
    class InTurns:
        def plan(self, round: int, idle: Sequence[str], chance: Chance) -> Plan:
            return Plan(("c0", "c1") if round % 2 == 0 else ("c1", "c2"))

    loop = train(tiny_setup(SPFL(gamma=1), rounds=2), InTurns())
    assert loop.server.similarity.clients == ("c0", "c1", "c2")
    for matrix in loop.server.similarity.stages.values():
        assert matrix[0, 2] == matrix[2, 0] == 0
        assert matrix[0, 1] != 0
        assert matrix[1, 2] != 0
        assert np.array_equal(np.diag(matrix), np.ones(3))
        assert row_softmax(matrix)[0, 2] == pytest.approx(1 / (1 + np.exp(matrix[0, 1]) + np.e))


def test_who_misses_a_measuring_pass_keeps_its_model() -> None:
    """Only those who measured stand at the mean afterwards; a client that was never heard of gets the mean."""
    setup = tiny_setup(SPFL(gamma=1), clients=4)
    old = state_of(setup, Similarity(("c0", "c1", "c2"), {}), spread=0.1)
    mean, before = old.mean + np.float32(1), {k: old.models[k] for k in ("c0", "c1")}
    server = ServerState(old.common, mean, ByClient(before), old.similarity)
    rng = np.random.default_rng(4)
    trained = mean + rng.normal(size=len(mean)).astype(np.float32)
    measured = [Arrival("c0", Message(weights=trained, measured=1), 1, lambda: Message(weights=mean))]
    after = SPFL(gamma=1).aggregate(server, measured, ServerContext(setup.task, 1))
    assert np.array_equal(after.model("c0"), mean)
    assert np.array_equal(after.model("c1"), before["c1"])
    assert np.array_equal(after.model("c2"), old.common), "it stood at the last mean, and still does"
    assert np.array_equal(after.model("c3"), mean), "new"
    assert np.allclose(after.mean, (mean + before["c1"] + old.common) / 3, atol=1e-6)


def test_with_sampling_the_models_of_the_absent_live_through_measuring_rounds() -> None:
    schedule = Sampled(sample=0.34)
    loop = train(tiny_setup(SPFL(gamma=2), clients=6, rounds=2), schedule)
    moved, task = dict(loop.server.models), loop.setup.task
    again = train(tiny_setup(SPFL(gamma=2), clients=6, rounds=3), schedule)
    absent = [k for k in moved if k not in schedule.plan(2, task.clients, task.chance).invited]
    assert absent
    for client in absent:
        assert np.array_equal(again.server.models[client], moved[client])


def replies_of(layout: Layout, clients: int, **parts: int) -> Arrivals:
    """Replies as frames, which are decoded when they are asked for; all started from zero."""
    rng, start = np.random.default_rng(6), Message(weights=np.zeros(layout.size, np.float32))
    messages = [Message(weights=rng.normal(size=layout.size).astype(np.float32), **parts) for _ in range(clients)]
    frames = [np.frombuffer(encode(message, layout.lengths).data, np.uint8) for message in messages]
    pending = [PendingReply(0, f"c{i:02}", 0, 0, frame) for i, frame in enumerate(frames)]

    def read(reply: PendingReply) -> Arrival:
        message = decode(reply.frame.tobytes(), Limit(3 * layout.size), layout.lengths)
        return Arrival(reply.client, message, reply.round, lambda: start)

    return Arrivals(pending, read)


@pytest.mark.parametrize("method", [SPFL(), SPFLw()])
def test_replies_are_not_all_decoded_at_once(method: SPFL | SPFLw, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real way from frames to similarity and to models holds two blocks of clients, and finds the same."""
    layout, clients = Layout.of(nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 10))), 40
    names, start = tuple(f"c{i:02}" for i in range(clients)), np.zeros(layout.size, np.float32)
    task = replace(tiny_setup(method).task, layout=layout, initial=start, clients=names)
    measuring, training = replies_of(layout, clients, measured=1), replies_of(layout, clients, examples=5)

    def merged() -> tuple[ServerState, int, ServerState]:
        server = method.start_server(task)
        tracemalloc.start()
        server = method.aggregate(server, measuring, ServerContext(task, 0, MEASURE))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return server, peak, method.aggregate(server, training, ServerContext(task, 0))

    whole, all_at_once, models = merged()
    monkeypatch.setattr(pairwise, "HELD", 6 * layout.size)
    monkeypatch.setattr(pairwise, "BLOCK", 1 << 14)
    blocked, peak, others = merged()
    assert peak < 4 * (6 + 6) * layout.size, "two blocks, a reply that is being decoded, a mean in float64"
    assert peak < all_at_once - 4 * (clients / 2) * layout.size
    for stage, matrix in whole.similarity.stages.items():
        assert np.abs(matrix - blocked.similarity.stages[stage]).max() < 1e-12
    for client in names:
        assert np.allclose(models.models[client], others.models[client], atol=1e-6)
