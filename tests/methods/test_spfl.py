"""SPFL and SPFL-w: the exact tests of their specification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.chance import Chance
from sparsona.client import Setup
from sparsona.engines.inprocess import InProcess
from sparsona.message import Message
from sparsona.method import Arrival, Method, Turn
from sparsona.methods._similar import Server
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.spfl import SPFL, mixed_cosines
from sparsona.methods.spfl_w import SPFLw
from sparsona.ops.pairwise import Similarity, cosines, row_softmax
from sparsona.records import Journal
from sparsona.rounds import Evaluation, Rounds
from sparsona.schedule import Sampled, Schedule
from sparsona.testing import tiny_setup


def train(setup: Setup, schedule: Schedule | None = None) -> Rounds:
    loop = Rounds(setup, InProcess(setup), schedule or Sampled(), Evaluation(every=0), Journal({}, True))
    loop.journal._sizes = dict.fromkeys(setup.federation.shares, 1)
    loop.run()
    return loop


def state_of(setup: Setup, similarity: Similarity, spread: float = 0.0) -> Server:
    start = setup.task.initial
    rng = np.random.default_rng(1)
    models = {k: (start + spread * rng.normal(size=len(start))).astype(np.float32) for k in setup.task.clients}
    return Server(start, start, models, similarity)


def updates_of(setup: Setup, examples: Sequence[int] = (10, 10, 10)) -> list[Arrival]:
    rng = np.random.default_rng(2)
    size = setup.task.layout.size
    return [
        Arrival(k, Message(update=rng.normal(size=size).astype(np.float32), examples=n), 1)
        for k, n in zip(setup.task.clients, examples, strict=True)
    ]


def test_similarity_is_symmetric_with_a_unit_diagonal_and_its_shares_are_shares() -> None:
    result = sparsona.run("spfl", clients=4, rounds=1)
    assert result.similarity is not None
    assert set(result.similarity.stages) == {"base", "head"}
    for matrix in result.similarity.stages.values():
        assert (matrix == matrix.T).all()
        assert np.allclose(np.diag(matrix), 1)
        assert np.allclose(row_softmax(matrix).sum(1), 1)


@pytest.mark.parametrize("method", [SPFL(), SPFL(head="mixed"), SPFLw(), SPFL(gamma=2, cosine="concat")])
def test_identical_clients_are_fedavg_for_ever(method: Method[Any, Any]) -> None:
    """Same data, same batches: all updates are equal, so every mixture is the mean."""

    class Same(Chance):
        def rng(self, purpose: str, *, round: int = 0, client: str = "", layer: int = 0) -> np.random.Generator:
            return super().rng(purpose, round=round, client="", layer=layer)

    def same(method: Method[Any, Any]) -> Rounds:
        setup = tiny_setup(method, rounds=4)
        first = setup.federation.shares["c0"]
        federation = replace(setup.federation, shares=dict.fromkeys(setup.task.clients, first))
        task = replace(setup.task, chance=Same(11))
        recipe = replace(setup.recipe, repeats=2)
        return train(replace(setup, federation=federation, task=task, recipe=recipe))

    ours, plain = same(method), same(FedAvg())
    for model in ours.server.models.values():
        assert np.allclose(model, plain.server.weights, atol=2e-6)


def test_uniform_shares_add_the_mean_update() -> None:
    setup = tiny_setup(SPFL(head="mixed"))
    server = state_of(setup, Similarity((), {}), spread=0.1)
    replies = updates_of(setup)
    models = SPFL(head="mixed").mixed(server, replies, setup.task.layout)
    mean = np.mean([a.message.vector("update") for a in replies], axis=0)
    for client, model in models.items():
        assert np.allclose(model, server.models[client] + mean, atol=1e-6)


def test_the_own_head_moves_by_the_clients_own_update_only() -> None:
    setup = tiny_setup(SPFL())
    server, replies = state_of(setup, Similarity((), {})), updates_of(setup)
    models = SPFL().mixed(server, replies, setup.task.layout)
    head = setup.task.layout["5.weight"].slice
    for a in replies:
        moved = models[a.client] - server.models[a.client]
        assert np.allclose(moved[head], a.message.vector("update")[head], atol=1e-6)
        assert not np.allclose(moved[: head.start], a.message.vector("update")[: head.start], atol=1e-2)


def test_the_printed_equation_7_makes_a_step_n_times_shorter_and_alpha_on_top() -> None:
    setup = tiny_setup(SPFL())
    server, replies = state_of(setup, Similarity((), {})), updates_of(setup)
    ours = SPFL(head="mixed").mixed(server, replies, setup.task.layout)
    printed = SPFL(head="mixed", paper_eq7=True).mixed(server, replies, setup.task.layout)
    for client in setup.task.clients:
        start = server.models[client]
        ratio = np.linalg.norm(printed[client] - start) / np.linalg.norm(ours[client] - start)
        assert ratio == pytest.approx(0.01 / 3, rel=1e-3)


def test_the_base_mixes_its_tensors_cosines_as_the_code_does() -> None:
    layout = tiny_setup(SPFL()).task.layout
    found = [a.message.vector("update") for a in updates_of(tiny_setup(SPFL()))]
    conv, fc, head = (layout[name].slice for name in ("0.weight", "3.weight", "5.weight"))
    weighed = mixed_cosines(found, layout, "base", {2: (0.7, 0.3)})
    assert np.allclose(weighed, 0.7 * cosines(found, [conv]) + 0.3 * cosines(found, [fc]))
    assert np.allclose(SPFL().similarities(found, layout)["head"], cosines(found, [head]))
    whole = SPFL(cosine="concat").similarities(found, layout)["base"]
    assert np.allclose(whole, cosines(found, [slice(0, head.start)]))


def test_weights_are_mixed_by_the_same_shares() -> None:
    setup = tiny_setup(SPFLw())
    rng = np.random.default_rng(3)
    matrix = cosines([rng.normal(size=9).astype(np.float32) for _ in range(3)], [slice(0, 9)])
    server = state_of(setup, Similarity(setup.task.clients, {"whole": matrix}), spread=0.1)
    replies = updates_of(setup)
    models = SPFLw().mixed(server, replies, setup.task.layout)
    trained = np.stack([server.models[a.client] + a.message.vector("update") for a in replies])
    for row, client in zip(row_softmax(matrix), setup.task.clients, strict=True):
        assert np.allclose(models[client], row @ trained, atol=1e-6)


def test_only_those_who_answer_are_mixed_and_the_others_stay() -> None:
    setup = tiny_setup(SPFL())
    server = state_of(setup, Similarity((), {}), spread=0.1)
    turn = Turn(setup.task, 1)
    after = SPFL(head="mixed").merge(server, updates_of(setup)[:2], turn)
    assert np.array_equal(after.models["c2"], server.models["c2"])
    mean = np.mean([a.message.vector("update") for a in updates_of(setup)[:2]], axis=0)
    assert np.allclose(after.models["c0"], server.models["c0"] + mean, atol=1e-6)
    assert np.allclose(after.mean, np.mean(list(after.models.values()), axis=0), atol=1e-6)


def test_one_client_alone_is_local_training() -> None:
    alone = {"data": "digits", "clients": 1, "partition": "iid", "rounds": 3}
    ours = sparsona.run("spfl", **alone, options={"steps": "one"})
    plain = sparsona.run("local", **alone)
    assert np.allclose(ours.models["c0"].model, plain.models["c0"].model, atol=1e-5)


def test_measuring_costs_a_model_each_way_and_its_work_is_thrown_away() -> None:
    result = sparsona.run("spfl", clients=3, rounds=3, options={"gamma": 2})
    first, second, third = (r.paper_up for r in result.history)
    weights = 4 * result.summary["weights"]
    assert (first, second, third) == (6 * weights, 3 * weights, 6 * weights)
    assert [r.paper_down for r in result.history] == [6 * weights, 3 * weights, 6 * weights]


def test_the_models_that_are_measured_at_the_end_are_personal() -> None:
    """The round after the last would begin with averaging: what is tested and saved must not."""
    result = sparsona.run("spfl", clients=3, rounds=2, options={"gamma": 2})
    assert not np.array_equal(result.models["c0"].model, result.models["c1"].model)


def test_a_measuring_pass_starts_from_the_mean_and_everyone_goes_on_from_there() -> None:
    loop = train(tiny_setup(SPFL(gamma=1, head="mixed"), rounds=1))
    second = tiny_setup(SPFL(gamma=1, head="mixed"), rounds=2)
    again = train(second)
    assert np.allclose(again.server.common, np.mean(list(loop.server.models.values()), axis=0), atol=1e-6)
    assert again.server.similarity.clients == second.task.clients


def test_with_sampling_pairs_that_never_met_count_as_unlike() -> None:
    loop = train(tiny_setup(SPFL(gamma=1), rounds=3), Sampled(sample=0.67))
    assert set(loop.server.similarity.clients) <= set(loop.setup.task.clients)
    for matrix in loop.server.similarity.stages.values():
        assert np.allclose(row_softmax(matrix).sum(1), 1)
