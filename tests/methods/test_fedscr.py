"""FedSCR: structures of convolutions and linear layers up, the whole model down, fixed and adaptive thresholds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import sparsona
from sparsona.chance import Chance
from sparsona.errors import WireError
from sparsona.layout import Layout
from sparsona.message import Message, Positions, Vector
from sparsona.method import Arrival, ServerContext, Task
from sparsona.methods.fedscr import ClientState, FedSCR, sent_entries, share
from sparsona.models.small import convnet2
from sparsona.ops.moments import Moments
from sparsona.testing import check_method
from sparsona.training.job import Trained
from sparsona.training.vector import FlatModule


def task(module: nn.Module | None = None) -> Task:
    flat = FlatModule(module or nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(5, 4)))
    return Task(flat.layout, flat.read(), ("a", "b"), 5, (2, 4, 4), 4, Chance(3))


@dataclass(frozen=True)
class Scripted:
    """A client whose training adds a given change."""

    task: Task
    change: Vector
    round: int = 0
    examples: int = 20
    loss: float = 0.1

    @property
    def layout(self) -> Layout:
        return self.task.layout

    def train(self, start: Vector, moments: Moments | None = None) -> Trained:
        return Trained(start + self.change, self.loss, 20, Moments(0, self.change, self.change))


def fit(method: FedSCR, own: ClientState, local: Any, down: Message | None = None) -> Any:
    return method.fit(own, down or Message(weights=local.task.initial), local)


def sent_of(done: Any) -> Vector:
    """What a reply carries: the update that the client wants to send, without what it keeps."""
    out: Vector = done.lost.residual - done.state.residual
    return out


def noise(seed: int, size: int) -> Vector:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@pytest.mark.parametrize(
    "method", [FedSCR(), FedSCR(sparsity=0.0), FedSCR("absolute"), FedSCR("adaptive"), FedSCR("adaptive", d3=-2.0)]
)
def test_conformance(method: FedSCR) -> None:
    check_method(method)


def test_what_is_sent_and_what_is_kept_make_the_update() -> None:
    where, method = task(), FedSCR(sparsity=0.5)
    size = where.layout.size
    done = fit(
        method, replace(method.start_client(where, "a"), residual=noise(0, size)), Scripted(where, noise(1, size))
    )
    wanted = (where.initial + noise(1, size)) - where.initial + noise(0, size)
    server = method.aggregate(method.start_server(where), [Arrival("a", done.reply, 0)], ServerContext(where, 0))
    sent = sent_of(done)
    assert np.array_equal(sent + done.state.residual, wanted), "to the last bit"
    assert np.allclose(server.weights - where.initial, sent, atol=1e-6), "the server sees what the client sent"
    for name in ("0.bias", "2.bias"):
        assert np.array_equal(sent[where.layout[name].slice], wanted[where.layout[name].slice]), (
            "vectors are sent whole"
        )
    kernels = sent[: 3 * 2 * 4].reshape(3, 2, 4)
    assert all(cell.all() or not cell.any() for row in kernels for cell in row), "kernels are kept or left as wholes"


def test_a_share_of_0_9_leaves_at_most_a_tenth_of_every_table() -> None:
    where, method = task(convnet2((1, 28, 28), 10)), FedSCR()
    done = fit(method, method.start_client(where, "a"), Scripted(where, noise(0, where.layout.size)))
    sent = sent_of(done)
    for tensor in where.layout.tensors:
        share = np.count_nonzero(sent[tensor.slice]) / tensor.size
        assert 0 < share <= 0.1 if len(tensor.shape) >= 2 else share == 1
    assert done.reply.positions("kept").size == (32 + 1) + (64 + 32) + (10 + 1600)


def test_an_absolute_threshold() -> None:
    where, method = task(), FedSCR("absolute", tau=3.0)
    change = np.zeros(where.layout.size, np.float32)
    change[8:12] = 1.0  # filter 1, channel 0: sums of 4
    change[20:24] = 0.5  # filter 2, channel 1: sums of 2
    done = fit(method, method.start_client(where, "a"), Scripted(where, change))
    assert done.reply.positions("kept").indices.tolist() == [1, 3]
    assert np.flatnonzero(sent_of(done)).tolist() == [8, 9, 10, 11]
    assert np.allclose(done.state.residual[20:24], 0.5, atol=1e-6)
    again = fit(method, done.state, Scripted(where, change, 1))
    assert np.allclose(sent_of(again)[20:24], 1.0, atol=1e-6), "what was kept back adds up"


def test_the_mean_counts_zeros() -> None:
    where, method = task(nn.Linear(2, 2)), FedSCR()
    kept = [Positions(4, np.array([0, 2])), Positions(4, np.array([1, 3]))]
    replies = [Message(examples=n, kept=k, values=np.ones(3, np.float32)) for n, k in zip((1, 3), kept, strict=True)]
    arrivals = [Arrival(c, m, 0) for c, m in zip("ab", replies, strict=True)]
    moved = method.aggregate(method.start_server(where), arrivals, ServerContext(where, 0)).weights - where.initial
    assert np.allclose(moved, [0.25, 0, 0, 0.75, 1, 1], atol=1e-6)


def test_a_reply_with_another_number_of_values_is_refused() -> None:
    where, method = task(nn.Linear(2, 2)), FedSCR()
    bad = Message(examples=1, kept=Positions(4, np.array([0, 2])), values=np.ones(9, np.float32))
    with pytest.raises(WireError, match="values"):
        method.aggregate(method.start_server(where), [Arrival("a", bad, 0)], ServerContext(where, 0))


def test_a_lost_reply_returns_to_the_residual() -> None:
    where, method = task(), FedSCR()
    size = where.layout.size
    first = fit(method, method.start_client(where, "a"), Scripted(where, noise(0, size)))
    change = (where.initial + noise(1, size)) - where.initial
    assert np.array_equal(first.lost.residual, (where.initial + noise(0, size)) - where.initial)
    for state in (first.state, first.lost):
        done = fit(method, state, Scripted(where, noise(1, size), 1))
        assert np.array_equal(done.lost.residual, change + state.residual)


def test_the_adaptive_threshold_follows_divergence_significance_and_losses() -> None:
    where, method = task(nn.Linear(2, 2)), FedSCR("adaptive", tau=0.3, d1=1.0, d2=2.0, d3=3.0)
    start = np.array([1, 1, 1, 1, 1, 1], np.float32)
    change = np.array([1, 1, 0, 0, 0.5, 0.5], np.float32)
    down = Message(weights=start)
    done = [
        fit(method, method.start_client(where, c), Scripted(where, change, loss=x), down)
        for c, x in (("a", 1), ("b", 3))
    ]
    divergence = math.sqrt((1 + 1) / (2 + 2 + 1 + 1))
    significance = math.sqrt((1 + 1 + 0.5 + 0.5) / 6)
    assert done[0].reply.real("moved") == pytest.approx(divergence + 2 * significance)
    arrivals = [Arrival(c, d.reply, 0) for c, d in zip("ab", done, strict=True)]
    server = method.aggregate(method.start_server(where), arrivals, ServerContext(where, 0))
    pull = divergence + 2 * significance + 3 * 1.0  # the losses 1 and 3 have variance 1
    sent = method.send(server, "a", ServerContext(where, 1))
    assert sent.real("tau") == pytest.approx(0.3 / (1 + math.exp(-pull)))
    assert "tau" not in method.send(server, "somebody new", ServerContext(where, 1))
    assert "tau" not in FedSCR().send(server, "a", ServerContext(where, 1))
    high = fit(method, done[0].state, Scripted(where, change * 0, 1), Message(weights=start, tau=99.0))
    assert len(high.reply.positions("kept").indices) == 0


def test_the_uplink_is_small_and_the_downlink_dense() -> None:
    settings: dict[str, Any] = {"data": "digits", "model": "mlp:200", "clients": 4, "rounds": 3}
    runs = [sparsona.run(name, **settings).summary for name in ("fedscr", "fedavg")]
    scr, avg = (found["bytes"] for found in runs)
    assert avg["up"] > 7 * scr["up"]
    assert runs[0]["paper_bytes"]["down"] == runs[1]["paper_bytes"]["down"], "the whole model"
    assert scr["down"] < 0.7 * avg["down"], "of which the wire sends the difference: few entries have moved"


def test_buffers_are_averaged() -> None:
    rng = np.random.default_rng(0)
    wards = {w: (rng.normal(i, 1, (40, 5)).astype("float32"), rng.integers(0, 2, 40)) for i, w in enumerate("ab")}
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    result = sparsona.run("fedscr", data=wards, model=net, rounds=2)
    means = [result.models[w].tensors()["1.running_mean"] for w in "ab"]
    assert np.array_equal(means[0], means[1])
    assert means[0].any()


def layout() -> Layout:
    return Layout.of(nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(5, 4)))


def test_filters_and_channels_of_a_convolution_and_of_a_linear_layer() -> None:
    where = layout()
    update = np.zeros(where.size, np.float32)
    conv = update[: 3 * 2 * 4].reshape(3, 2, 2, 2)
    conv[1, 0] = -1  # filter 1 sums to 4, channel 0 to 4
    conv[2, 1] = 0.5  # filter 2 sums to 2, channel 1 to 2
    linear = update[where["2.weight"].slice].reshape(4, 5)
    linear[0, 3] = 9
    kept = FedSCR(rule="absolute").kept(update, where, 3.0)
    assert len(kept) == (3 + 2) + (4 + 5)
    assert kept.tolist() == [False, True, False, True, False] + [True, False, False, False] + [False] * 3 + [
        True,
        False,
    ]
    entries = sent_entries(kept, where)
    assert np.flatnonzero(entries[:24]).tolist() == [8, 9, 10, 11], "the kernel of filter 1 and channel 0"
    assert np.flatnonzero(entries[27:47]).tolist() == [3]
    assert entries[24:27].all(), "a bias is always sent"
    assert entries[47:].all(), "a bias is always sent"


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.99]))
def test_the_share_is_the_largest_that_one_threshold_allows(seed: int, rows: int, columns: int, p: float) -> None:
    cells = np.abs(np.random.default_rng(seed).normal(size=(rows, columns)))
    f, c = cells.sum(1), cells.sum(0)
    kept_f, kept_c = share(f, c, p)
    count = kept_f.sum() * kept_c.sum()
    assert count >= 1
    cuts = np.concatenate([[0.0], f / f.max(), c / c.max()])
    options = [((f / f.max()) > t).sum() * ((c / c.max()) > t).sum() for t in cuts if t < 1]
    fitting = [n for n in options if n <= (1 - p) * rows * columns + 1e-9]
    assert count == (max(fitting) if fitting else min(options))


def test_a_tensor_that_did_not_move_sends_nothing() -> None:
    kept = FedSCR().kept(np.zeros(layout().size, np.float32), layout(), 0.3)
    assert not kept.any()


def test_buffers_are_not_among_the_entries() -> None:
    where = Layout.of(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert len(sent_entries(np.ones(4, np.bool_), where)) == where.size == 4 + 2 + 2 + 2


def test_a_reply_about_another_model_is_refused() -> None:
    with pytest.raises(WireError, match="structures"):
        sent_entries(np.ones(3, np.bool_), layout())
