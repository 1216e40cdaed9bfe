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
    waiting = ClientState(floats(0, 8, 0, 2, 0))
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
    # momentum: half of (3, 1, 8) again, and what waited: (0.5, 1.5, 4)
    second = answered(method, first, [("a", update((3, 0.25)))], SMALL, 1)
    assert second.moved.tolist() == [4, 2, 12, 0, 0]
    assert second.residual.tolist() == [0.5, -0.5, 0, 0.25, 0]


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
    assert len(Path(str(fedthin.__file__)).read_text(encoding="utf-8").splitlines()) <= 100


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
