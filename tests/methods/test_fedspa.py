"""FedSpa: what its specification says must hold exactly."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
from torch import nn
from watching import LoseOnce, equal_shares, local_of, watch

import sparsona
from sparsona.chance import Chance
from sparsona.errors import InputError, WireError
from sparsona.experiment import make_method
from sparsona.federation.schedule import Sampled
from sparsona.federation.setup import Setup
from sparsona.layout import Layout
from sparsona.message import Message, Positions
from sparsona.method import Arrival, ServerContext, Task
from sparsona.methods._masked import ServerState, mask_of
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.fedspa import FedSpa, active_counts, erk
from sparsona.models import MODELS
from sparsona.ops.masks import annealed, unpack
from sparsona.testing import check_method, tiny_setup
from sparsona.training.config import TrainConfig
from sparsona.training.vector import FlatModule


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"search": "rsm"},
        {"init": "uniform", "same_init": False, "regrow": "random", "agg": "count"},
        {"search": "rsm", "same_init": False},
        {"density": 1.0},
        {"density": 0.05, "mask_1d": False, "newcomer": "majority"},
    ],
)
def test_the_contract_holds(options: dict[str, Any]) -> None:
    check_method(FedSpa(**options))


@pytest.mark.parametrize("options", [{}, {"init": "uniform"}, {"regrow": "random"}, {"same_init": False}])
def test_every_tensor_keeps_its_number_of_active_weights_for_ever(options: dict[str, Any]) -> None:
    run = watch(FedSpa(**options), rounds=6)
    layout = run.task.layout
    first = [int(run.mask("c0", 0)[t.slice].sum()) for t in layout.tensors]
    assert sum(first) < layout.size
    moved = 0
    for done in range(7):
        for client in run.task.clients:
            mask = run.mask(client, done)
            assert [int(mask[t.slice].sum()) for t in layout.tensors] == first
            moved += int((mask != run.mask(client, 0)).sum())
    assert moved > 0


@pytest.mark.parametrize("same", [True, False])
def test_rsm_keeps_the_first_masks(same: bool) -> None:
    run = watch(FedSpa(search="rsm", same_init=same))
    masks = [run.mask(client, done) for client in run.task.clients for done in range(5)]
    assert all((mask == masks[0]).all() for mask in masks) is same
    for client in run.task.clients:
        assert (run.mask(client, 4) == run.mask(client, 0)).all()
    assert run.servers[-1].masks == {}


@pytest.mark.parametrize("agg", ["mean", "count"])
@pytest.mark.parametrize("sample", [1.0, 0.4])
def test_the_server_moves_only_where_a_participant_is_active(agg: str, sample: float) -> None:
    run = watch(FedSpa(density=0.2, agg=agg, same_init=False), rounds=5, schedule=Sampled(sample=sample))  # type: ignore[arg-type]
    ever = np.zeros(run.task.layout.size, np.bool_)
    for done in range(5):
        invited = Sampled(sample=sample).plan(done, run.task.clients, run.task.chance).invited
        active = np.any([run.mask(client, done) for client in invited], axis=0)
        before, after = run.servers[done].weights, run.servers[done + 1].weights
        assert (before[~active] == after[~active]).all()
        assert (before[active] != after[active]).any()
        ever |= active
    never = ~ever
    assert never.any()
    assert (run.servers[-1].weights[never] == run.task.initial[never]).all()


def test_dormant_weights_never_train() -> None:
    method = FedSpa(density=0.3)
    setup = equal_shares(tiny_setup(method))
    local = local_of(setup)
    state = method.start_client(setup.task, "c0")
    down = method.send(method.start_server(setup.task), "c0", ServerContext(setup.task, 0))
    mask = method.first_mask(setup.task, "c0")
    fit = method.fit(state, down, local)
    assert isinstance(fit.model, np.ndarray)
    assert (fit.model[~mask] == 0).all()
    start = method.personal_model(state, down, local)
    assert (start == np.where(mask, setup.task.initial, 0)).all()
    update = start - fit.model
    assert (update[~mask] == 0).all()
    assert (update[mask] != 0).mean() > 0.5
    assert len(fit.reply.vector("values")) == mask.sum()


def test_density_1_is_uniform_fedavg_to_the_bit() -> None:
    ours, theirs = (watch(method, change=equal_shares) for method in (FedSpa(density=1.0), FedAvg()))
    assert len({len(share.train) for share in ours.rounds.setup.federation.splits.values()}) == 1
    for one, other in zip(ours.servers, theirs.servers, strict=True):
        assert (one.weights == other.weights).all()
    assert (ours.servers[-1].weights != ours.servers[0].weights).any()
    for one, other in zip(ours.rounds.run_log.rounds, theirs.rounds.run_log.rounds, strict=True):
        assert (one.scores, one.paper_up, one.paper_down) == (other.scores, other.paper_up, other.paper_down)


def test_a_late_update_is_subtracted_from_the_model_of_today() -> None:
    layout = Layout.of(nn.Linear(2, 1, bias=False))
    task = Task(layout, np.array([2, 2], np.float32), ("a", "b"), 4, (2,), 1, Chance(0))
    method = FedSpa(density=1.0, search="rsm")

    def reply(client: str, round: int, *values: float) -> Arrival:
        sent = Message(values=np.array([2, 2] if round == 0 else [8, 4], np.float32))
        return Arrival(client, Message(values=np.array(values, np.float32)), round, lambda: sent)

    server = method.aggregate(method.start_server(task), [reply("b", 0, 8, 4)], ServerContext(task, 0))
    assert server.weights.tolist() == [8, 4]
    late = method.aggregate(server, [reply("a", 0, 1, 3), reply("b", 1, 8, 6)], ServerContext(task, 1))
    assert late.weights.tolist() == [(7 + 8) / 2, (5 + 6) / 2], "a has subtracted 1 and -1, wherever it was"


def test_the_masks_of_the_last_round_do_not_move() -> None:
    run = watch(FedSpa(), rounds=4)
    for client in run.task.clients:
        assert (run.mask(client, 3) == run.mask(client, 4)).all()
        assert (run.mask(client, 2) != run.mask(client, 3)).any()


def test_the_next_mask_drops_the_smallest_and_grows_the_steepest() -> None:
    method = FedSpa(density=0.4)
    setup = tiny_setup(method, rounds=10)
    local = local_of(setup, round=3)
    mask = method.first_mask(setup.task, "c0")
    trained = local.train(np.where(mask, setup.task.initial, np.float32(0)), mask=mask).weights
    rate = annealed(0.5, 3, 10)
    following = method.next_mask(mask, trained, rate, local)
    gradient = local.gradient(trained, setup.config.batch)
    for t in setup.task.layout.tensors:
        old, new = mask[t.slice], following[t.slice]
        inside = np.flatnonzero(old)
        count = ceil(rate * len(inside))
        dropped = inside[np.argsort(np.abs(trained[t.slice][inside]), kind="stable")[:count]]
        half = old.copy()
        half[dropped] = False
        outside = np.flatnonzero(~half)
        half[outside[np.argsort(-np.abs(gradient[t.slice][outside]), kind="stable")[:count]]] = True
        assert (new == half).all()
        assert (old != new).sum() == 2 * (count - new[dropped].sum())


def test_same_data_and_whole_batches_keep_all_masks_the_same() -> None:
    def same_for_all(setup: Setup) -> Setup:
        share = setup.federation.splits["c0"]
        shares = {name: replace(share, name=name) for name in setup.federation.splits}
        config = TrainConfig(epochs=3, batch=10_000, lr=0.1)
        return replace(setup, federation=replace(setup.federation, splits=shares), config=config)

    run = watch(FedSpa(), rounds=5, change=same_for_all)
    for done in range(6):
        assert all((run.mask(client, done) == run.mask("c0", done)).all() for client in run.task.clients)
    assert (run.mask("c0", 5) != run.mask("c0", 0)).any()


def test_what_has_grown_starts_from_the_servers_weights() -> None:
    run = watch(FedSpa(density=0.3), rounds=4)
    grown = run.mask("c1", 2) & ~run.mask("c1", 1)
    assert grown.any()
    server, task = run.servers[2], run.task
    assert (server.weights[grown] != 0).all()
    method = run.rounds.setup.method
    assert (
        method.send(server, "c1", ServerContext(task, 2)).vector("values") == server.weights[run.mask("c1", 2)]
    ).all()


def test_after_a_lost_reply_the_client_goes_back_to_the_mask_that_the_server_knows() -> None:
    run = watch(FedSpa(), rounds=5, schedule=LoseOnce("c1", 2))
    assert (run.mask("c1", 2) == run.mask("c1", 3)).all()
    assert (run.mask("c0", 2) != run.mask("c0", 3)).any()
    method, task, store = run.rounds.setup.method, run.task, run.rounds.engine.store
    for client in task.clients:
        stamp = run.rounds.delivery.stamp(client, (5, 0))
        down = method.send(run.rounds.server, client, ServerContext(task, 5))
        assert (mask_of(store.get(client).resolved(stamp), down, task.layout.size) == run.mask(client, 5)).all()


def test_a_client_whose_reply_is_lost_goes_on_from_the_mask_that_it_trained_with() -> None:
    method = FedSpa()
    setup = tiny_setup(method)
    down = method.send(method.start_server(setup.task), "c0", ServerContext(setup.task, 0))
    fit, size = method.fit(method.start_client(setup.task, "c0"), down, local_of(setup)), setup.task.layout.size
    first, change = method.first_mask(setup.task, "c0"), fit.reply.positions("change")
    assert (unpack(fit.lost.mask, size) == first).all()
    assert (unpack(fit.state.mask, size) == first ^ change.mask()).all()
    assert len(change.indices)


def test_values_travel_on_the_mask_and_only_changes_of_it_besides() -> None:
    run = watch(FedSpa(), rounds=4)
    active = int(run.mask("c0", 0).sum())
    for report in run.rounds.run_log.rounds:
        assert report.paper_down == report.paper_up == 3 * 4 * active
        assert report.down.positions == 0
        assert 0 < report.down.values <= 3 * (4 * active + 16)
    positions = [report.up.positions for report in run.rounds.run_log.rounds]
    assert positions[0] > positions[-1]
    # Plain packing: a tight one may send the few weights that differ from a reference with their positions.
    still = watch(FedSpa(search="rsm"), rounds=4, change=lambda setup: replace(setup, packing="plain"))
    assert all(report.up.positions == 0 for report in still.rounds.run_log.rounds)


def test_half_of_the_numbers_on_a_real_net() -> None:
    same: dict[str, Any] = {"data": "digits", "model": "mlp", "clients": 4, "rounds": 2, "partition": "iid"}
    result, dense = (sparsona.run(name, packing="plain", **same) for name in ("fedspa", "fedavg"))
    for way in ("up", "down"):
        assert result.summary["paper_bytes"][way] == pytest.approx(dense.summary["paper_bytes"][way] / 2, rel=1e-3)
    assert result.summary["bytes"]["down"] < 0.52 * dense.summary["bytes"]["down"]
    assert 0.05 < np.mean(result.models["c0"].tensors()["fc1.weight"] == 0) < 0.7


def test_new_clients_start_from_the_first_mask_or_from_the_majoritys() -> None:
    for choice in ("initial", "majority"):
        run = watch(FedSpa(density=0.3, newcomer=choice), rounds=4)
        method, task, turn = run.rounds.setup.method, run.task, ServerContext(run.task, 4)
        assert isinstance(method, FedSpa)
        down = method.send(run.rounds.server, "new", turn)
        local = local_of(run.rounds.setup, round=4)
        state = method.start_client(task, "new")
        held = mask_of(state, down, task.layout.size)
        assert (held == run.mask("c0", 0)).all() == (choice == "initial")
        assert held.sum() == run.mask("c0", 0).sum()
        fit = method.adapt(state, down, local)
        searched = unpack(fit.state.mask, task.layout.size)
        assert (searched != held).any()
        assert "mask" not in method.send(run.rounds.server, "c0", turn)


def test_with_one_round_nothing_moves() -> None:
    run = watch(FedSpa(), rounds=1)
    assert (run.mask("c0", 1) == run.mask("c0", 0)).all()


def test_batch_norm_statistics_travel_dense_and_are_averaged() -> None:
    def with_norm(setup: Setup) -> Setup:
        with setup.task.chance.torch("initial weights"):
            module = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
        flat = FlatModule(module)
        task = replace(setup.task, layout=flat.layout, initial=flat.read())
        return replace(equal_shares(setup), module=module, task=task)

    ours, theirs = (watch(method, change=with_norm) for method in (FedSpa(density=0.2), FedAvg()))
    buffers = ours.rounds.delivery.buffers
    assert buffers is not None
    assert len(buffers) == 16, "dense, whatever the mask"
    assert (buffers[:8] != 0).all()
    assert (buffers[8:] != 1).all()
    dense = watch(FedSpa(density=1.0), change=with_norm)
    assert (dense.servers[-1].weights == theirs.servers[-1].weights).all()
    one, other = dense.rounds.delivery.buffers, theirs.rounds.delivery.buffers
    assert one is not None
    assert other is not None
    assert np.array_equal(one, other)


def test_a_reply_that_does_not_fit_is_refused() -> None:
    method = FedSpa()
    task = tiny_setup(method).task
    server, turn = method.start_server(task), ServerContext(task, 0)
    active = int(method.first_mask(task, "c0").sum())
    good, none = np.zeros(active, np.float32), Positions(task.layout.size, np.zeros(0, np.int64))
    method.aggregate(server, [Arrival("c0", Message(values=good, change=none), 0)], turn)
    for bad in (
        Message(values=good[1:], change=none),
        Message(values=good, change=Positions(3, np.array([1]))),
        Message(change=none),
    ):
        with pytest.raises(WireError):
            method.aggregate(server, [Arrival("c0", bad, 0)], turn)


def test_a_thousand_masks_cost_a_thousand_bits_a_weight() -> None:
    """1,000 clients x 1.66M weights are 208 MB of masks; measured here at a fiftieth of the weights."""
    clients = tuple(f"c{i:04}" for i in range(1000))
    layout = Layout.of(nn.Linear(180, 180))
    task = Task(layout, np.zeros(layout.size, np.float32), clients, 10, (180,), 180, Chance(0))
    method = FedSpa()
    mask = method.first_mask(task, "c0000")
    flip = Positions(layout.size, np.array([int(np.flatnonzero(mask)[0]), int(np.flatnonzero(~mask)[0])]))
    values = np.ones(int(mask.sum()), np.float32)
    server, turn = method.start_server(task), ServerContext(task, 0)
    tracemalloc.start()
    try:
        for start in range(0, 1000, 100):
            arrivals = [Arrival(c, Message(values=values, change=flip), 0) for c in clients[start : start + 100]]
            server = method.aggregate(server, arrivals, turn)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    bits = sum(held.nbytes for held in server.masks.values())
    assert bits == 1000 * -(-layout.size // 8)
    assert now < 1.15 * bits + 8 * layout.size
    assert peak < 1.15 * bits + 60 * layout.size
    assert peak < 1000 * 4 * layout.size / 20
    assert 1000 * -(-1_660_000 // 8) < 208e6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": 0}, "density"),
        ({"density": 1.5}, "density"),
        ({"search": "lottery"}, "search"),
        ({"init": "snip"}, "init"),
        ({"regrow": "never"}, "regrow"),
        ({"agg": "sum"}, "agg"),
        ({"alpha": 2}, "alpha"),
        ({"sparsity": 0.5}, "no option 'sparsity'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_method("fedspa", options)


def test_server_state_names_only_masks_that_moved() -> None:
    server = FedSpa().start_server(tiny_setup(FedSpa()).task)
    assert isinstance(server, ServerState)
    assert server.masks == {}


NETS = {"lenet5": ((1, 28, 28), 26), "vgg11-gn": ((3, 32, 32), 10), "resnet18-gn": ((3, 32, 32), 100)}
ROUNDS = {"lenet5": 400, "vgg11-gn": 1000, "resnet18-gn": 1000}


def layout_of(net: str) -> Layout:
    return Layout.of(MODELS.get(net)(*NETS[net]))


def gigabytes(net: str, numbers: int) -> float:
    """The paper's communication column: ten clients a round, both ways, four bytes a number."""
    return ROUNDS[net] * 10 * 2 * numbers * 4 / 1e9


@pytest.mark.parametrize(
    ("net", "active", "size", "densities"),
    [
        ("lenet5", 219_547, 439_096, {"conv1": 1, "conv2": 0.4764, "fc3": 0.4839, "fc4": 1}),
        (
            "vgg11-gn",
            4_615_554,
            9_231_114,
            {"conv1": 1, "conv2": 1, "conv3": 1, "conv4": 0.8481, "conv5": 0.6336}
            | {"conv6": 0.4216, "conv7": 0.4216, "conv8": 0.4216, "fc1": 1},
        ),
        (
            "resnet18-gn",
            5_610_061,
            11_220_132,
            {"conv1": 1, "layer2.1.conv2": 1, "layer3.0.conv1": 1, "layer3.0.conv2": 0.716, "layer3.1.conv1": 0.716}
            | {"layer3.1.conv2": 0.716, "layer4.0.conv1": 0.5349, "layer4.0.conv2": 0.3559, "layer4.1.conv1": 0.3559}
            | {"layer4.1.conv2": 0.3559, "layer4.0.shortcut.0": 1, "fc1": 1},
        ),
    ],
)
def test_the_papers_nets_to_the_count(net: str, active: int, size: int, densities: dict[str, float]) -> None:
    layout = layout_of(net)
    counts = active_counts(layout, 0.5)
    assert (sum(counts), layout.size) == (active, size)
    by_name = {t.name: count / t.size for t, count in zip(layout.tensors, counts, strict=True)}
    for name, density in densities.items():
        assert by_name[f"{name}.weight"] == pytest.approx(density, abs=6e-5)
    assert all(by_name[t.name] == 1 for t in layout.tensors if len(t.shape) == 1)
    shares = erk([t.shape for t in layout.tensors], 0.5)
    assert counts == [int(share * t.size) for share, t in zip(shares, layout.tensors, strict=True)]


@pytest.mark.parametrize(
    ("net", "dense", "sparse"),
    [("lenet5", 14.1, 7.0), ("vgg11-gn", 738.5, 369.2), ("resnet18-gn", 897.6, 448.8)],
)
def test_the_papers_communication_column(net: str, dense: float, sparse: float) -> None:
    layout = layout_of(net)
    assert round(gigabytes(net, layout.size), 1) == dense
    assert round(gigabytes(net, sum(active_counts(layout, 0.5))), 1) == sparse
    assert round(gigabytes(net, layout.size) * 0.75, 1) == {14.1: 10.5, 738.5: 553.9, 897.6: 673.2}[dense]


@pytest.mark.parametrize(
    ("sparsity", "printed"), [(0.2, 718.1), (0.4, 538.6), (0.5, 448.8), (0.6, 359.0), (0.8, 179.5)]
)
def test_the_papers_sparsity_table(sparsity: float, printed: float) -> None:
    assert round(gigabytes("resnet18-gn", sum(active_counts(layout_of("resnet18-gn"), 1 - sparsity))), 1) == printed


def test_one_dimensional_tensors_can_be_left_out() -> None:
    layout = layout_of("resnet18-gn")
    counts = active_counts(layout, 0.5, mask_1d=False)
    assert round(gigabytes("resnet18-gn", sum(counts)), 1) == 449.2
    flat = active_counts(layout, 0.5, uniform=True, mask_1d=False)
    assert all(c == (t.size if len(t.shape) == 1 else t.size // 2) for c, t in zip(flat, layout.tensors, strict=True))


def test_uniform_gives_every_tensor_the_same_density() -> None:
    layout = layout_of("lenet5")
    assert active_counts(layout, 0.3, uniform=True) == [int(0.3 * t.size) for t in layout.tensors]


@pytest.mark.parametrize("density", [0.001, 0.05, 0.3, 0.77, 0.999, 1.0])
def test_densities_lie_between_0_and_1_and_keep_the_whole(density: float) -> None:
    shapes = [(20, 1, 5, 5), (20,), (50, 20, 5, 5), (50,), (500, 800), (500,), (26, 500), (26,), (), (1, 1)]
    sizes = np.array([int(np.prod(shape)) for shape in shapes])
    shares = np.array(erk(shapes, density))
    assert ((shares > 0) & (shares <= 1)).all()
    assert (shares * sizes).sum() == pytest.approx(density * sizes.sum(), rel=1e-9)
    if density == 1:
        assert (shares == 1).all()


def test_buffers_are_no_part_of_the_mask() -> None:
    from torch import nn

    layout = Layout.of(nn.Sequential(nn.Linear(30, 20), nn.BatchNorm1d(20)))
    assert active_counts(layout, 0.1, uniform=True) == [60, 2, 2, 2]
