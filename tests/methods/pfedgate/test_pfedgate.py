"""pFedGate as a whole: what travels, what stays, and where it is FedAvg."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sparsona.errors import InputError
from sparsona.experiment import make_method
from sparsona.federation.setup import Setup
from sparsona.message import Message
from sparsona.method import Arrival, ServerContext
from sparsona.methods.fedavg import FedAvg
from sparsona.methods.pfedgate import ClientState, PFedGate, ServerState
from sparsona.methods.pfedgate.gate import Design, Gate
from sparsona.testing import check_method, tiny_setup
from sparsona.testing.privacy import LEAKY, Recorder, arrays
from sparsona.testing.tiny import run
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.runner import ModelRunner
from sparsona.training.vector import FlatModule

RECIPE = TrainConfig(batch=16, lr=0.05, momentum=0.9, weight_decay=5e-4, clip=10.0)


def client(method: Any, name: str = "c1", config: TrainConfig = RECIPE) -> tuple[Setup, Local]:
    setup = tiny_setup(method)
    runner = ModelRunner(setup.module, setup.federation.data, setup.objective, setup.task.chance)
    return setup, Local(name, 0, setup.task, config, setup.federation.splits[name], runner)


def open_gate(method: PFedGate, task: Any) -> np.ndarray:
    """A gate that is 1 whatever comes in."""
    gate = Gate(Design(task.shape, len(method._cut(task.layout)), method.paths))
    with torch.no_grad():
        for name, parameter in gate.named_parameters():
            if "_norm" in name and name.startswith(("scale", "importance")):
                parameter.fill_(30.0 if name.endswith("bias") else 0.0)
    return FlatModule(gate).read("all")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ste": "repo", "density": 0.3},
        {"density": [0.5, 0.1], "split": "paper", "paths": "one", "knapsack": "exact"},
        {"density": 1.0, "gate_pool": 2, "post_norm": False, "logit_relu": True, "test_batch": 0},
        {"pre_norm": False, "sigmoid": False},
        {"gate_of": "client", "split": "channel", "density": [0.5, 0.3]},
        {"gate_of": "client", "paths": "one", "ste": "repo", "test_batch": 0},
    ],
)
def test_conformance(options: dict[str, Any]) -> None:
    check_method(make_method("pfedgate", options))


@pytest.mark.parametrize("paths", ["one", "two"])
def test_an_open_gate_at_density_one_is_fedavg(paths: Any) -> None:
    method = PFedGate(density=1.0, paths=paths)
    setup, local = client(method)
    task = setup.task
    own = ClientState(open_gate(method, task), None, 1.0)
    down = method.send(method.start_server(task), "c1", ServerContext(task, 0))
    fit, plain = method.fit(own, down, local), FedAvg().fit(None, down, local)
    update = fit.reply.blocks("update")
    assert len(update.kept) == update.count
    wanted = plain.reply.vector("weights") - task.initial
    assert np.allclose(update.values, wanted, atol=1e-7)
    merged = method.aggregate(ServerState(task.initial), [Arrival("c1", fit.reply, 0)], ServerContext(task, 0))
    assert np.allclose(merged.weights, plain.reply.vector("weights"), atol=1e-6)
    assert isinstance(plain.model, np.ndarray)
    assert fit.model is not None
    inputs = local.inputs()
    assert np.allclose(local.runner.outputs(fit.model, inputs), local.runner.outputs(plain.model, inputs), atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"paths": "one"}, {"ste": "repo", "density": 0.3}])
def test_the_gate_is_in_no_message(options: dict[str, Any]) -> None:
    """No stretch of four numbers of any gate that a client ever had, nor of its optimiser's memory, is found in what
    anybody sends, nor in a downlink."""
    method = make_method("pfedgate", options)
    rounds = run(method, engine=Recorder, config=LEAKY)
    engine = rounds.engine
    assert isinstance(engine, Recorder)
    states = [state for known in engine.states.values() for state in known]
    assert len(engine.sent) == 9
    assert len(states) == 12, "before the first turn and after each of three"
    memories = [state.moments.first for state in states if state.moments is not None]
    assert len(memories) == 9
    assert all(len(memory) and memory.any() for memory in memories)
    private = [*(state.gate for state in states), *memories]
    secrets = {chunk.tobytes() for array in private for chunk in _fours(array)}
    assert len(secrets) > 1000
    layout = rounds.setup.task.layout
    for _, message in engine.sent:
        assert set(message) == {"update", "examples"}
        assert len(message.blocks("update").values) <= layout.size
        held = b"".join(array.tobytes() for array in arrays(message))
        assert not any(chunk in held for chunk in secrets)
    down = method.send(rounds.server, "c1", ServerContext(rounds.setup.task, 3))
    assert set(down) == {"weights"}
    assert len(down.vector("weights")) == layout.size
    held = down.vector("weights").tobytes()
    assert not any(chunk in held for chunk in secrets)


def _fours(array: np.ndarray) -> list[np.ndarray]:
    """Stretches of four numbers, without those that are zeros or ones."""
    fours = (array[start : start + 4] for start in range(0, len(array) - 4, 4))
    return [four for four in fours if len(np.unique(four)) > 2]


@pytest.mark.parametrize(
    "options", [{"density": 0.5}, {"density": 0.3, "ste": "repo"}, {"density": 0.3, "ste": "repo", "slim": False}]
)
def test_dropped_blocks_do_not_move_and_are_not_sent(options: dict[str, Any]) -> None:
    method = make_method("pfedgate", options)
    assert isinstance(method, PFedGate)
    setup, local = client(method)
    down = Message(weights=setup.task.initial)
    fit = method.fit(method.start_client(setup.task, "c1"), down, local)
    update = fit.reply.blocks("update")
    assert 0 < len(update.kept) < update.count
    cut = method._cut(setup.task.layout)
    assert set(np.flatnonzero(cut.first)) <= set(update.kept.tolist())
    moved = fit.model.weights - setup.task.initial  # type: ignore[union-attr]
    kept = np.isin(np.arange(len(cut)), update.kept)
    assert (moved[~cut.mask(kept)] == 0).all()
    assert (moved[cut.mask(kept)] != 0).any()


def test_sliced_training_is_masked_training() -> None:
    fits = []
    for slim in (False, True):
        method = PFedGate(density=0.3, ste="repo", slim=slim)
        setup, local = client(method)
        fits.append(method.fit(method.start_client(setup.task, "c1"), Message(weights=setup.task.initial), local))
    one, other = fits
    assert np.array_equal(one.reply.blocks("update").kept, other.reply.blocks("update").kept)
    assert np.allclose(one.reply.blocks("update").values, other.reply.blocks("update").values, atol=1e-6)
    assert np.allclose(one.state.gate, other.state.gate, atol=1e-5)


def test_a_new_client_trains_its_gate_only() -> None:
    method = PFedGate(density=0.5, new_epochs=2)
    setup, local = client(method)
    own = method.start_client(setup.task, "somebody new")
    fit = method.adapt(own, Message(weights=setup.task.initial), local)
    assert not len(fit.reply)
    assert np.array_equal(fit.model.weights, setup.task.initial)  # type: ignore[union-attr]
    assert not np.array_equal(fit.state.gate, own.gate)


def test_densities_are_dealt_out_in_turn() -> None:
    method = make_method("pfedgate", {"density": [0.5, 0.1], "split": "paper"})
    assert isinstance(method, PFedGate)
    setup = tiny_setup(method)
    dealt = [method.start_client(setup.task, name).density for name in setup.task.clients]
    assert dealt == [0.5, 0.1, 0.5]
    assert method.start_client(setup.task, "somebody new").density in (0.5, 0.1)


def test_the_gates_optimiser_goes_on_and_the_models_starts_anew() -> None:
    method = PFedGate()
    setup, local = client(method)
    down = Message(weights=setup.task.initial)
    first = method.fit(method.start_client(setup.task, "c1"), down, local)
    second = method.fit(first.state, down, replace(local, round=1))
    assert first.state.moments is not None
    assert second.state.moments is not None
    assert second.state.moments.step == 2 * first.state.moments.step
    one = replace(RECIPE, steps=1)
    with_memory, without = (
        method.fit(first.state, down, replace(local, round=1, config=config))
        for config in (one, replace(one, momentum=0.0))
    )
    assert with_memory.reply.blocks("update").values.any()
    moved = [fit.reply.blocks("update").values for fit in (with_memory, without)]
    assert np.array_equal(moved[0], moved[1]), "the model's first step of a round knows no momentum"
    assert not np.array_equal(with_memory.state.gate, without.state.gate), "the gate's does"


@pytest.mark.parametrize(("ste", "moved"), [("repo", 1), ("paper", None)])
def test_operations_are_those_of_the_blocks_that_are_kept(ste: Any, moved: int | None) -> None:
    """Forward and back to the inputs run the kept blocks, the weights' gradient these or all; and the gate counts."""
    method = PFedGate(density=0.3, ste=ste, paths="one")
    setup, local = client(method)
    fit = method.fit(method.start_client(setup.task, "c1"), Message(weights=setup.task.initial), local)
    cut = method._cut(setup.task.layout)
    update = fit.reply.blocks("update")
    kept = cut.mask(np.isin(np.arange(len(cut)), update.kept))
    by_tensor = {"0.weight": 32, "0.bias": 16, "3.weight": 2, "3.bias": 1, "5.weight": 2, "5.bias": 1}
    ran, all_of_it = (
        sum(price * int(mask[setup.task.layout[name].slice].sum()) for name, price in by_tensor.items())
        for mask in (kept, np.ones_like(kept))
    )
    gate = (2 * 36 + 1) * len(cut)
    assert local.runner.flops == local.examples * (2 * ran + (ran if moved else all_of_it) + 3 * gate)
    assert local.runner.samples == pytest.approx(local.examples)
    assert ran < 0.6 * all_of_it


def test_a_sparse_client_counts_less_than_a_dense_one() -> None:
    counted = {}
    for density in (1.0, 0.3):
        method = PFedGate(density=density, ste="repo", gate_pool=4)
        setup, local = client(method)
        method.fit(method.start_client(setup.task, "c1"), Message(weights=setup.task.initial), local)
        counted[density] = local.runner.flops
    assert counted[0.3] < counted[1.0]


@pytest.mark.parametrize(
    "options", [{"density": 0}, {"density": []}, {"density": [0.5, 2]}, {"split": "thirds"}, {"gate_lr": 0}]
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="pfedgate"):
        make_method("pfedgate", options)


@pytest.mark.parametrize("options", [{"pre_norm": False}, {"sigmoid": False}, {"gate_of": "client"}])
def test_ablations_begin_with_the_same_scales(options: dict[str, Any]) -> None:
    """In training mode the norm ties mean logits to its bias: all of them begin at 1/2 (start 0), give or take."""
    for start, scale in ((0.0, 0.5), (3.0, 0.9526)):
        design = Design((1, 4, 4), 6, start=start, **{"of" if k == "gate_of" else k: v for k, v in options.items()})
        gate = Gate(design).train()
        _, scales = gate(torch.randn(64, 1, 4, 4, generator=torch.Generator().manual_seed(0)))
        assert scales.tolist() == pytest.approx([scale] * 6, abs=0.06)


def test_a_clients_gate_ignores_the_batch_and_still_learns() -> None:
    method = PFedGate(density=0.5, gate_of="client", gate_lr=0.5)
    setup, local = client(method)
    own = method.start_client(setup.task, "c1")
    fit = method.fit(own, Message(weights=setup.task.initial), local)
    gate = FlatModule(Gate(method._design(setup.task)))
    gate.load(fit.state.gate, "all")
    first, second = (gate.module(torch.randn(3, *setup.task.shape)) for _ in range(2))
    assert torch.equal(first[1], second[1])
    assert not np.array_equal(fit.state.gate, own.gate)


def test_new_clients_train_their_gate_at_the_full_rate() -> None:
    """The schedule's last drop is for clients that have trained all the time."""
    method = PFedGate(density=0.5, gate_start=0.0)
    falling = replace(RECIPE, drops=(0.5,), decay=0.9)
    gates = []
    for config in (RECIPE, falling):
        setup, local = client(method, config=config)
        own = method.start_client(setup.task, "c1")
        fit = method.adapt(own, Message(weights=setup.task.initial), replace(local, round=setup.task.rounds))
        gates.append(fit.state.gate)
    assert np.array_equal(gates[0], gates[1])
