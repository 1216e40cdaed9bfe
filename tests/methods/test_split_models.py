"""fedper, fedrep, lg-fedavg, fedem, heterofl, fedmask and fedmd: what each must do to the number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scripted import vector_of

import sparsona
from sparsona.errors import InputError
from sparsona.experiment import make_method
from sparsona.layout import Layout
from sparsona.message import Message, Positions
from sparsona.method import Arrival, Method, ServerContext
from sparsona.methods import METHODS
from sparsona.methods.fedem import ClientState as Share
from sparsona.methods.fedem import FedEM
from sparsona.methods.fedmask import FedMask, agreed
from sparsona.methods.fedmd import LOGITS, FedMD
from sparsona.methods.heterofl import HeteroFL, narrow, output_rows
from sparsona.methods.heterofl import ServerState as Wide
from sparsona.methods.split import FedPer, FedRep, LGFedAvg
from sparsona.models import MODELS
from sparsona.ops.mixture import Mixture
from sparsona.ops.parts import last_layers
from sparsona.personal.kept import leaves
from sparsona.testing import check_method, tiny_setup
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner

NAMES = ("fedper", "fedrep", "lg-fedavg", "fedem", "heterofl", "fedmask", "fedmd")


def client(method: Method[Any, Any], name: str = "c1", config: TrainConfig | None = None) -> Local:
    setup = tiny_setup(method)
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    return Local(name, 0, setup.task, config or setup.config, setup.federation.splits[name], runner)


def phase(method: Method[Any, Any], local: Local) -> tuple[Any, Message, Any, Any]:
    """The server, its downlink, and the client's turn from scratch."""
    server = method.start_server(local.task)
    down = method.send(server, local.client, ServerContext(local.task, 0, local.phase))
    own = method.start_client(local.task, local.client)
    return server, down, own, method.fit(own, down, local)


@pytest.mark.parametrize("name", NAMES)
def test_conformance(name: str) -> None:
    check_method(make_method(name, {}))


@pytest.mark.parametrize(
    ("method", "layers"), [(FedPer(), ("0", "3")), (FedRep(), ("0", "3")), (LGFedAvg(), ("3", "5"))]
)
def test_only_the_shared_layers_travel(method: Any, layers: tuple[str, ...]) -> None:
    local = client(method)
    _, down, own, fit = phase(method, local)
    size = sum(t.size for t in local.layout.tensors if t.name.rpartition(".")[0] in layers)
    assert len(down.vector("shared")) == len(fit.reply.vector("shared")) == size
    assert len(own.kept) == local.layout.size - size
    assert not np.array_equal(fit.state.kept, own.kept), "the own part is trained, too"
    assert np.array_equal(np.sort(fit.model), np.sort(np.concatenate([fit.state.kept, fit.reply.vector("shared")])))


def test_fedper_trains_all_at_once_as_fedavg_does() -> None:
    local = client(FedPer())
    _, _, _, fit = phase(FedPer(), local)
    assert np.array_equal(fit.model, local.train(local.task.initial).weights)


def test_fedrep_trains_the_head_and_then_the_body() -> None:
    method = FedRep(head_epochs=2)
    local = client(method)
    _, _, _, fit = phase(method, local)
    head = last_layers(local.layout, 1)
    first = local.train(local.task.initial, replace(local.config, epochs=2), mask=head, stream="head").weights
    assert np.array_equal(first[~head], local.task.initial[~head])
    assert np.array_equal(vector_of(fit.model)[head], first[head])
    assert np.array_equal(fit.model, local.train(first, mask=~head, stream="body").weights)


def test_fedrep_newcomers_leave_the_body_alone() -> None:
    method = FedRep(new_epochs=3)
    local = client(method)
    server = method.start_server(local.task)
    down = method.send(server, "new", ServerContext(local.task, 3))
    fit = method.adapt(method.start_client(local.task, "new"), down, local)
    head = last_layers(local.layout, 1)
    assert np.array_equal(vector_of(fit.model)[~head], server.weights)
    assert not np.array_equal(vector_of(fit.model)[head], local.task.initial[head])


def test_lg_fedavg_takes_the_plain_mean() -> None:
    method, local = LGFedAvg(), client(LGFedAvg())
    size = int(last_layers(local.layout, 2).sum())
    replies = [Message(shared=np.full(size, v, np.float32), examples=n) for v, n in ((1, 10), (3, 90))]
    arrivals = [Arrival(f"c{i}", reply, 0) for i, reply in enumerate(replies)]
    plain = method.aggregate(method.start_server(local.task), arrivals, ServerContext(local.task, 0)).weights
    assert (plain == 2).all()
    body = local.layout.size - int(last_layers(local.layout, 1).sum())
    replies = [Message(shared=np.full(body, v, np.float32), examples=n) for v, n in ((1, 10), (3, 90))]
    arrivals = [Arrival(f"c{i}", reply, 0) for i, reply in enumerate(replies)]
    by_examples = FedPer().aggregate(FedPer().start_server(local.task), arrivals, ServerContext(local.task, 0)).weights
    assert np.allclose(by_examples, 2.8)


def test_a_head_must_leave_something() -> None:
    with pytest.raises(InputError, match="3 layers"):
        phase(FedPer(head=3), client(FedPer()))


def test_fedem_expectation_and_prediction() -> None:
    method, local = FedEM(), client(FedEM())
    server, down, _, fit = phase(method, local)
    losses = np.stack([local.losses(model) for model in server.models], 1).astype(np.float64)
    share = np.exp(-losses) / np.exp(-losses).sum(1, keepdims=True)
    assert np.allclose(fit.state.mixture, share.mean(0), atol=1e-6)
    for m in range(3):
        wanted = local.train(server.models[m], importance=share[:, m], stream=f"learner {m}").weights
        assert np.array_equal(fit.reply.vector(f"model{m}"), wanted)
    model = method.personal_model(Share(np.array([1, 0, 0], np.float32)), down, local)
    inputs = local.inputs()
    alone = local.runner.outputs(server.models[0], inputs).softmax(1)
    assert torch.allclose(local.runner.outputs(model, inputs).exp(), alone, atol=1e-6)
    newcomer = method.adapt(method.start_client(local.task, "new"), down, local)
    assert isinstance(newcomer.model, Mixture)
    assert not len(newcomer.reply)
    assert all(np.array_equal(a, b) for a, b in zip(leaves(newcomer.model)[:-1], server.models, strict=True))


def test_fedem_learners_start_apart_but_alike() -> None:
    local = client(FedEM())
    models = FedEM().start_server(local.task).models
    for tensor in local.layout.tensors:
        one, other = models[0][tensor.slice], models[1][tensor.slice]
        assert np.array_equal(np.sort(one), np.sort(other))
    assert not np.array_equal(models[0], models[1])
    assert np.array_equal(models[0], local.task.initial)


@pytest.mark.parametrize(("rate", "share"), [(0.7071, 0.513), (0.5, 0.253)])
def test_narrow_nets_have_the_weights_they_should(rate: float, share: float) -> None:
    layout = Layout.of(MODELS.get("lenet-cifar")((3, 32, 32), 10))
    assert narrow(layout, rate).mean() == pytest.approx(share, abs=0.003)
    assert narrow(layout, 1.0).all()


def test_what_cannot_be_narrowed_says_so() -> None:
    for net in ("vgg11-gn", "resnet18-gn"):
        with pytest.raises(InputError, match="narrowed"):
            narrow(Layout.of(MODELS.get(net)((3, 32, 32), 10)), 0.5)


def test_heterofl_at_full_width_without_its_extras_is_masked_fedavg() -> None:
    method = HeteroFL(full=1.0, own_labels=False)
    local = client(method)
    _, _, _, fit = phase(method, local)
    assert np.allclose(fit.model, local.train(local.task.initial).weights, atol=1e-7)


def test_heterofl_narrow_clients_train_a_smaller_net_as_if_it_had_zeros() -> None:
    method = HeteroFL(rate=0.5, full=0.0, scaler=False, own_labels=False)
    local = client(method)
    _, down, _, fit = phase(method, local)
    mask = narrow(local.layout, 0.5)
    assert len(down.vector("weights")) == mask.sum()
    assert (fit.model[~mask] == 0).all()
    wanted = local.train(np.where(mask, local.task.initial, np.float32(0)), mask=mask).weights
    assert np.allclose(fit.model, wanted, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"scaler": False}, {"own_labels": False}, {"full": 1.0}])
def test_heterofl_is_tested_as_the_net_that_it_trains(options: dict[str, Any]) -> None:
    """At a rate of next to nothing the mean loss of the training is that of the model before and after it."""
    method = HeteroFL(**{"rate": 0.5, "full": 0.0, **options})
    local = client(method, config=TrainConfig(batch=16, lr=1e-20))
    labels = local.targets()
    local = replace(local, split=replace(local.split, train=local.split.train[labels != labels[0]]))
    _, down, own, fit = phase(method, local)
    trained = local.runner.loss
    before = method.personal_model(own, down, local)
    assert local.losses(before).mean() == pytest.approx(trained, abs=1e-6)
    assert local.losses(fit.model).mean() == pytest.approx(trained, abs=1e-6)
    bare = np.zeros(local.layout.size, np.float32)
    bare[method._mask(local.client, local.task)] = down.vector("weights")
    if method.own_labels or (method.scaler and not method.full):
        assert abs(local.losses(bare).mean() - trained) > 1e-3, "the bare weights are another net"


def test_heterofl_may_be_tested_without_being_told_which_labels_occur() -> None:
    """Training is the same; the tested net then has outputs for labels that the client has no samples of."""
    found = {}
    for labels in ("own", "all"):
        method = HeteroFL(rate=0.5, full=0.0, test_labels=labels)
        local = client(method)
        targets = local.targets()
        local = replace(local, split=replace(local.split, train=local.split.train[targets != targets[0]]))
        _, _, _, fit = phase(method, local)
        outputs = local.runner.outputs(fit.model, local.inputs())
        found[labels] = fit.reply.vector("weights"), np.abs(np.asarray(outputs)[:, targets[0]]).max()
    assert np.array_equal(found["own"][0], found["all"][0])
    assert found["own"][1] == 0
    assert found["all"][1] > 0


def test_heterofl_narrow_clients_count_the_narrow_net() -> None:
    """Half of 3 channels is 2, of 5 units 3: 2 x 9 and 2 weights and biases of the convolution, and so on."""
    method = HeteroFL(rate=0.5, full=0.0)
    local = client(method)
    phase(method, local)
    narrow_net = 32 * 18 + 16 * 2 + 2 * 32 * 3 + 3 + 2 * 3 * 4 + 4
    assert local.runner.flops == 3 * local.examples * narrow_net
    whole = client(FedPer())
    phase(FedPer(), whole)
    assert whole.runner.flops == 3 * whole.examples * (32 * 27 + 16 * 3 + 2 * 48 * 5 + 5 + 2 * 5 * 4 + 4)


def test_heterofl_averages_over_those_who_have_a_weight() -> None:
    method = HeteroFL(rate=0.5, full=0.5)
    local = client(method)
    task, layout = local.task, local.layout
    whole = {name: method._rate(name, task) == 1.0 for name in task.clients}
    assert sorted(whole.values()) == [False, True, True]
    masks = {name: method._mask(name, task) for name in task.clients}
    owned = {name: np.arange(4) != i for i, name in enumerate(task.clients)}
    arrivals = [
        Arrival(name, Message(weights=np.full(int(masks[name].sum()), i + 1.0, np.float32), examples=5,
                              labels=Positions.of(owned[name])), 0)
        for i, name in enumerate(task.clients)
    ]  # fmt: skip
    merged = method.aggregate(Wide(task.initial), arrivals, ServerContext(task, 0)).weights
    for place in range(layout.size):
        held = [
            i + 1.0
            for i, name in enumerate(task.clients)
            if masks[name][place] and output_rows(layout, owned[name])[place]
        ]
        assert merged[place] == pytest.approx(np.mean(held) if held else task.initial[place])


def test_fedmask_sends_bits_and_never_moves_a_weight() -> None:
    method = FedMask(keep=0.5)
    local = client(method)
    _, _, own, fit = phase(method, local)
    region = last_layers(local.layout, 2)
    assert np.array_equal(fit.model[~region], local.task.initial[~region])
    used = fit.model[region] != 0
    assert np.array_equal(fit.model[region][used], local.task.initial[region][used])
    assert fit.reply.positions("mask").mask().sum() <= 0.5 * region.sum() + 1
    assert not np.array_equal(fit.state.scores, own.scores)


def test_fedmask_says_at_first_sight_that_it_is_experimental() -> None:
    assert METHODS.describe()["fedmask"].startswith("Experimental: ")
    assert (FedMask.__doc__ or "").startswith("Experimental: ")


def test_fedmask_agreement_by_client() -> None:
    one, two, three = (np.array(m, np.bool_) for m in ([1, 1, 0, 1], [1, 0, 0, 0], [1, 0, 1, 0]))
    assert agreed([one, two, three], three).tolist() == [True, False, True, False]
    assert agreed([one, two, three], one).tolist() == [True, True, False, True]
    assert agreed([one, two, three], None).tolist() == [True, False, False, False]


def test_fedmd_sends_logits_and_learns_their_mean() -> None:
    method = FedMD(align=40, pretrain=2)
    local = client(method)
    server, _, own, fit = phase(method, replace(local, phase=LOGITS))
    assert fit.model is None
    assert set(fit.reply) == {"logits", "examples"}
    assert len(fit.reply.vector("logits")) == 40 * 4
    other = Message(logits=fit.reply.vector("logits") + 2, examples=1)
    turn = ServerContext(local.task, 0, LOGITS)
    merged = method.aggregate(server, [Arrival("c0", other, 0), Arrival("c1", fit.reply, 0)], turn)
    assert np.allclose(merged.logits, fit.reply.vector("logits") + 1, atol=1e-5)
    down = method.send(merged, "c1", ServerContext(local.task, 0))
    second = method.fit(fit.state, down, local)
    assert set(second.reply) == {"examples"}
    assert not np.array_equal(second.state.weights, fit.state.weights)
    assert np.array_equal(method.personal_model(second.state, down, local), second.state.weights)
    assert own.ready is False


def test_fedmd_work_on_public_samples_counts() -> None:
    """Answering is a pass forward, and what is digested is trained on as much as the client's own samples."""
    method = FedMD(align=40, pretrain=2, digest=3)
    local = client(method)
    server, _, _, fit = phase(method, replace(local, phase=LOGITS))
    each = 32 * 27 + 16 * 3 + 2 * 48 * 5 + 5 + 2 * 5 * 4 + 4
    assert local.runner.samples == pytest.approx(2 * local.examples + 40 / 3)
    assert local.runner.flops == each * (3 * 2 * local.examples + 40)
    merged = method.aggregate(server, [Arrival("c1", fit.reply, 0)], ServerContext(local.task, 0, LOGITS))
    down = method.send(merged, "c1", ServerContext(local.task, 0))
    local.runner.flops, local.runner.samples = 0, 0.0
    method.fit(fit.state, down, local)
    assert local.runner.samples == pytest.approx(3 * 40 + local.examples)
    assert local.runner.flops == each * 3 * (3 * 40 + local.examples)


def test_fedmd_public_data_must_fit() -> None:
    with pytest.raises(InputError, match="public=digits"):
        phase(FedMD(public="digits"), client(FedMD()))
    result = sparsona.run("fedmd", data="digits", clients=2, rounds=1, options={"public": "digits", "align": 50})
    assert result.summary["accuracy"]["post"]["mean"] > 0.5


@pytest.mark.parametrize("name", NAMES)
def test_options_are_checked(name: str) -> None:
    with pytest.raises(InputError, match="no option"):
        make_method(name, {"nonsense": 1})
