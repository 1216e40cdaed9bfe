from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import sparsona
from sparsona.engines.inprocess import InProcess
from sparsona.errors import ContractError, InputError
from sparsona.experiment import make_method
from sparsona.federation.budget import mechanisms
from sparsona.federation.evaluation import EVERY_ROUND, LAST_ROUND, Evaluation
from sparsona.federation.rounds import assemble
from sparsona.federation.schedule import EVERYONE
from sparsona.federation.setup import Setup
from sparsona.message import Message
from sparsona.method import Fit
from sparsona.methods import METHODS
from sparsona.methods.fedavg import FedAvg
from sparsona.personal.layer import PersonalLayer
from sparsona.privacy import PrivacySettings
from sparsona.testing import tiny_setup
from sparsona.testing.privacy import Tap, check_budget
from sparsona.training.config import TrainConfig
from sparsona.training.local import Local

NOISY = PrivacySettings(noise=1.0)
PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"


def with_config(**changes: Any) -> Callable[[Setup], Setup]:
    return lambda setup: replace(setup, config=replace(setup.config, **changes))


REFUSED: dict[str, Callable[[Setup], Setup]] = {
    "BatchNorm": lambda setup: replace(setup, module=nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), nn.Linear(36, 4))),
    "logit_prior": with_config(logit_prior=True),
    "class_weights": with_config(class_weights="balanced"),
    "stored": with_config(order="stored"),
    "trees": lambda setup: replace(setup, personal=PersonalLayer(pool=("own", "trees"), weights="equal")),
    "validation rows": lambda setup: replace(setup, personal=PersonalLayer(pool=("own", "shared"))),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_depends_on_rows_beside_queries_is_refused(reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        mechanisms(REFUSED[reason](tiny_setup(FedAvg())), NOISY, LAST_ROUND)
    with pytest.raises(InputError, match="ft trains"):
        mechanisms(tiny_setup(FedAvg()), NOISY, Evaluation(ft=True))


def test_a_plan_counts_trainings_uses_and_the_expert_alone() -> None:
    setup = tiny_setup(make_method("fedavg-ft", {"ft_epochs": 2}), rounds=4)
    setup = replace(setup, config=TrainConfig(batch=8))
    for client, found in mechanisms(setup, NOISY, EVERY_ROUND).items():
        rows = len(setup.federation.splits[client].train)
        epoch = -(-rows // 8)
        assert found.most == 4 * epoch + 5 * 2 * epoch
        assert found.rate == 8 / rows
    alone = replace(setup, method=FedAvg(), personal=PersonalLayer(pool=("alone", "own"), weights="equal"))
    epochs = {client: -(-len(split.train) // 8) for client, split in setup.federation.splits.items()}
    assert {k: m.most for k, m in mechanisms(alone, NOISY, EVERY_ROUND).items()} == {
        k: 8 * epoch for k, epoch in epochs.items()
    }
    few = mechanisms(
        replace(alone, personal=PersonalLayer(), task=replace(setup.task, rounds=100)), NOISY, LAST_ROUND, 0.1
    )
    assert {k: m.most for k, m in few.items()} == {k: 19 * epoch for k, epoch in epochs.items()}


def budgeted(setup: Setup, **changes: Any) -> Setup:
    found = mechanisms(setup, NOISY, LAST_ROUND)
    return replace(setup, privacy={client: replace(one, **changes) for client, one in found.items()})


def test_a_run_counts_queries_and_goes_on_without_clients_whose_budget_is_spent() -> None:
    setup = budgeted(tiny_setup(FedAvg(), rounds=3))
    assert setup.privacy is not None
    planned = setup.privacy["c1"]
    spent = replace(setup, privacy={**setup.privacy, "c1": replace(planned, most=planned.most - 1)})
    engine = InProcess(spent)
    rounds = assemble(spent, engine, EVERYONE, LAST_ROUND)
    rounds.run()
    assert {(round, client) for round, client, _ in rounds.refused} == {(2, "c1")}
    for client in ("c0", "c2"):
        assert engine.store.get(client).queries == setup.privacy[client].most
    assert engine.store.get("c1").queries == planned.most * 2 // 3


def test_no_loss_is_told_and_without_a_budget_there_are_no_queries() -> None:
    for setup, told in ((budgeted(tiny_setup(FedAvg(), rounds=1)), False), (tiny_setup(FedAvg(), rounds=1), True)):
        engine = Tap(setup)
        assemble(setup, engine, EVERYONE, LAST_ROUND).run()
        assert np.isfinite(engine.losses[:3]).all() == told
        assert (engine.store.get("c0").queries is None) == told


@dataclass(frozen=True)
class Telling(FedAvg):
    """Tells the sum of its rows' targets, past the queries."""

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        fit = super().fit(state, down, local)
        told = int(local.runner.targets[local.split.train].sum())
        return replace(fit, reply=Message(**fit.reply.parts, told=told))


def test_the_canary_finds_a_method_that_tells_about_a_row_past_its_budget() -> None:
    with pytest.raises(ContractError, match="one row changes"):
        check_budget(Telling())


@pytest.mark.parametrize("method", ["fedavg", "fedavg-ft"])
def test_a_summary_tells_what_each_client_has_spent(method: str) -> None:
    """All of the plan, the use of the exported model included."""
    found = sparsona.run(method, rounds=2, clients=2, engine="inprocess", privacy={"epsilon": 8.0})
    privacy = found.summary["privacy"]
    assert set(privacy["epsilon"]) == {"c0", "c1"}
    assert all(7.5 < epsilon <= 8 for epsilon in privacy["epsilon"].values())
    assert privacy["largest"] == max(privacy["epsilon"].values())


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_trains_a_table_with_a_budget_or_refuses_as_the_page_says(name: str, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    refused = dict(re.findall(r"^\| `([\w-]+)` refuses \| (.*) \|$", page, re.MULTILINE))
    (trained,) = re.findall(r"^\| train \| (.*) \|$", page, re.MULTILINE)
    assert (name in refused) != (f"`{name}`" in trained)
    rng = np.random.default_rng(0)
    for ward in ("east", "west"):
        lines = [f"{rng.integers(20, 90)},{'fm'[i % 2]},{rng.choice(['no', 'yes'])}" for i in range(40)]
        (tmp_path / f"{ward}.csv").write_text("\n".join(["age,sex,ill", *lines]) + "\n")
    declared = {"classes": ["no", "yes"], "categorical": ["sex"], "bounds": ["age=0:120", "sex=f/m"]}
    columns = {"target": ["ill"], "task": "classification", **declared}
    settings: dict[str, Any] = {
        "data": f"folder:{tmp_path}",
        "columns": columns,
        "rounds": 1,
        "privacy": {"epsilon": 8.0},
    }
    if name in refused:
        with pytest.raises(InputError, match=re.escape(refused[name])):
            sparsona.run(name, engine="inprocess", **settings)
        return
    found = sparsona.run(name, engine="inprocess", **settings).summary["privacy"]
    assert 0 < found["largest"] <= 8
