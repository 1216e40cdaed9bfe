"""Ditto: the global model is FedAvg's, the personal one a textbook loop with a pull."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scripted import vector_of
from watching import equal_shares, local_of, watch

from sparsona.errors import InputError
from sparsona.experiment import make_method
from sparsona.message import Message
from sparsona.methods.ditto import ClientState, Ditto
from sparsona.methods.fedavg import FedAvg
from sparsona.testing import check_method, tiny_setup
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local
from sparsona.training.step import Proximal


@pytest.mark.parametrize("options", [{}, {"form": "shrink", "global_epochs": 2, "personal_epochs": 3}, {"lam": 2.0}])
def test_the_contract_holds(options: dict[str, Any]) -> None:
    check_method(Ditto(**options))


def test_the_global_model_is_that_of_fedavg_to_the_bit() -> None:
    ours, theirs = (watch(method) for method in (Ditto(), FedAvg()))
    for one, other in zip(ours.servers, theirs.servers, strict=True):
        assert (one.weights == other.weights).all()


def plain_torch(
    local: Local, start: np.ndarray, w: np.ndarray, config: TrainConfig, lam: float, form: str
) -> np.ndarray:
    """Both forms as the two repositories write them, on the same batches."""
    flat = local.runner.flat
    flat.load(start)
    flat.module.train()
    towards = torch.from_numpy(w)
    optimizer = torch.optim.SGD(flat.module.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    for indices, _ in local._batches(config, None, "personal"):
        inputs, targets = local.runner.batch(indices)
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(flat.module(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            if form == "loss":
                flat.gradient.add_(lam * (flat.weights - towards))
            if config.clip is not None:
                torch.nn.utils.clip_grad_norm_(flat.module.parameters(), config.clip)
            optimizer.step()
            if form == "shrink":
                flat.weights.sub_(config.lr * lam * (flat.weights - towards))
    return flat.read()


@pytest.mark.parametrize("form", ["loss", "shrink"])
def test_the_personal_model_is_the_textbooks(form: Literal["loss", "shrink"]) -> None:
    config = TrainConfig(epochs=2, batch=8, lr=0.1, weight_decay=5e-4, clip=0.5)
    local = local_of(replace(tiny_setup(FedAvg()), config=config))
    rng = np.random.default_rng(0)
    w = local.task.initial
    own = w + rng.normal(0, 0.3, len(w)).astype(np.float32)
    fit = Ditto(lam=0.5, form=form).fit(ClientState(own), Message(weights=w), local)
    assert np.abs(fit.state.own - plain_torch(local, own, w, config, 0.5, form)).max() < 2e-6
    assert fit.model is fit.state.own
    other = Ditto(lam=0.5, form="shrink" if form == "loss" else "loss").fit(ClientState(own), Message(weights=w), local)
    assert np.abs(other.state.own - fit.state.own).max() > 1e-4


def test_a_strong_pull_ends_at_the_global_model() -> None:
    local = local_of(replace(tiny_setup(FedAvg()), config=TrainConfig(batch=8, lr=0.1)))
    w = local.task.initial
    fit = Ditto(lam=10.0, form="shrink").fit(ClientState(w + 1), Message(weights=w), local)
    assert np.abs(fit.state.own - w).max() < 1e-6


def test_epochs_are_counted_for_each_of_the_two_models() -> None:
    local = local_of(tiny_setup(FedAvg()))
    w = local.task.initial
    costs = []
    for options in ({"global_epochs": 2, "personal_epochs": 3}, {}):
        local.runner.flops = 0
        Ditto(**options).fit(ClientState(w), Message(weights=w), local)  # type: ignore[arg-type]
        costs.append(local.runner.flops)
    assert costs[0] * 2 == costs[1] * 5


def test_a_mask_stops_the_separate_pull_too() -> None:
    local = local_of(tiny_setup(FedAvg()))
    w = local.task.initial
    mask = np.arange(len(w)) % 2 == 0
    trained = local.train(w, mask=mask, proximal=Proximal(w + 1, 1.0, apart=True)).weights
    assert (trained[~mask] == w[~mask]).all()
    assert (trained[mask] > w[mask]).mean() > 0.9


def test_who_never_took_part_has_the_first_model() -> None:
    run = watch(Ditto(), change=equal_shares, rounds=1)
    method, task = run.rounds.setup.method, run.task
    state = method.start_client(task, "new")
    down = method.send(run.rounds.server, "new", None)  # type: ignore[arg-type]
    assert np.array_equal(vector_of(method.personal_model(state, down, local_of(run.rounds.setup))), task.initial)


@pytest.mark.parametrize("options", [{"lam": -1}, {"form": "mean"}, {"global_epochs": 0}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        make_method("ditto", options)
