"""The learning rate `auto`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.errors import InputError
from sparsona.experiment import build, read
from sparsona.prepare import prepare
from sparsona.rate import LADDER, search_rate, settled
from sparsona.report.comparison import group_runs
from sparsona.report.measured import measure
from sparsona.report.words import chosen_rates
from sparsona.result import Result
from sparsona.runs.about import RateSearch

RNG = np.random.default_rng(1)
X = RNG.normal(size=(240, 6)).astype(np.float32)
Y = (X @ RNG.normal(size=6) + RNG.normal(size=240) > 0).astype(np.int64)
WARDS = {f"w{k}": (X[k::3], Y[k::3]) for k in range(3)}
STEEP = {f"w{k}": (30 * X[k::3], (100 * X[k::3, :1]).astype(np.float32)) for k in range(3)}


def run(data: Any = WARDS, **settings: Any) -> Result:
    return sparsona.run(
        settings.pop("method", "fedavg"), data=data, rounds=6, engine=settings.pop("engine", "inprocess"), **settings
    )


def test_owners_data_have_it_by_default_and_published_data_and_given_rates_do_not() -> None:
    shared = {"method": "fedavg", "rounds": 2}
    assert prepare(shared, data=WARDS).auto
    assert prepare({**shared, "training": {"lr": "auto"}}).auto
    assert not prepare({**shared, "training": {"lr": 0.1}}, data=WARDS).auto
    assert not prepare(shared).auto
    for method in ("alone-trees", "fedmask"):
        assert search_rate(prepare({**shared, "method": method}, data=WARDS)) is None, "it has no use for a rate"


def test_the_rate_is_the_best_of_those_tried_and_what_it_cost_is_counted(tmp_path: Path) -> None:
    done = run(out=tmp_path / "run")
    search = done.summary["rate"]
    assert read(tmp_path / "run" / "experiment.toml")["training"]["lr"] == search["chosen"]
    assert search["scores"][f"{search['chosen']:g}"] == max(search["scores"].values())
    assert 2 <= len(search["scores"]) <= len(LADDER)
    assert search["rounds"] == 2
    given = run(training={"lr": search["chosen"]})
    assert given.summary["digest"] == done.summary["digest"], "the search leaves nothing behind"
    assert "rate" not in given.summary
    spent = done.summary["bytes"]
    assert spent["search"]["up"] > 0
    assert spent["up"] - spent["search"]["up"] == given.summary["bytes"]["up"]
    assert measure(tmp_path / "run").about.rate is not None


def steep(engine: str) -> RateSearch:
    """A search on rows that are not scaled, whose loss explodes at the usual rate."""
    shared = {"method": "local", "rounds": 10, "columns": {"scaling": "none"}, "workers": 2}
    found = search_rate(prepare({**shared, "engine": engine}, data=STEEP))
    assert found is not None
    return found


def test_a_rate_that_diverges_is_left() -> None:
    found = steep("inprocess")
    assert found.scores["0.1"] is None
    assert found.chosen < 0.1
    assert found.scores[f"{found.chosen:g}"] is not None


def test_a_trial_that_diverges_alarms_no_one(
    recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    shared = {"method": "fedpse", "rounds": 10, "columns": {"scaling": "none"}, "engine": "inprocess"}
    found = search_rate(prepare(shared, data=STEEP))
    assert found is not None
    assert max(score for score in found.scores.values() if score is not None) > 1e9, "a trial exploded"
    assert not [one for one in recwarn if "the loss is" in str(one.message)]
    assert not caplog.records


@pytest.mark.slow
def test_engines_choose_the_same_rate() -> None:
    one, other = steep("inprocess"), steep("pool")
    assert (one.chosen, one.scores) == (other.chosen, other.scores)


def test_a_run_that_goes_on_keeps_its_rate_and_how_it_was_chosen(tmp_path: Path) -> None:
    whole = run()
    out = tmp_path / "run"
    run(out=out, on_round=lambda report: report.round < 3)
    before = measure(out).about.rate
    for again in ({}, {"training": {"lr": whole.summary["rate"]["chosen"]}}):
        done = run(out=out, resume=True, **again)
        assert done.summary["digest"] == whole.summary["digest"]
        assert done.summary["rate"]["scores"] == whole.summary["rate"]["scores"]
        assert measure(out).about.rate == before


def test_a_privacy_budget_is_not_spent_on_trials(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"method": "fedavg", "rounds": 2, "privacy": {"noise": 1.0}, "training": {"lr": "auto"}}
    assert search_rate(prepare(settings)) is None
    assert "budget" in caplog.text


def test_without_validation_rows_the_usual_rate_stays(caplog: pytest.LogCaptureFixture) -> None:
    for optimizer, usual in (("sgd", 0.1), ("adam", 0.001)):
        settings = {"method": "fedavg", "rounds": 2, "split": {"validation": 0}, "training": {"optimizer": optimizer}}
        found = settled(prepare(settings, data=WARDS))
        assert found.search is None
        assert found.setup.config.lr == usual
    assert "validation" in caplog.text


def test_seeds_that_choose_other_rates_are_one_method(tmp_path: Path) -> None:
    for seed in (0, 1):
        run(out=tmp_path / str(seed), seed=seed)
    runs = [measure(tmp_path / str(seed)) for seed in (0, 1)]
    settings = dict(runs[1].settings) | {"training": {**runs[1].settings["training"], "lr": 0.5}}
    assert list(group_runs([runs[0], replace(runs[1], settings=settings)])) == ["fedavg"]


def test_methods_that_share_a_rate_are_said_to(tmp_path: Path) -> None:
    def told(*methods: str, lr: float | str = 0.1) -> str:
        for name in methods:
            run(out=tmp_path / f"{name}-{lr}", lr=lr, method=name)
        return chosen_rates(group_runs([measure(tmp_path / f"{name}-{lr}") for name in methods]))

    assert "train at the rate 0.1; --set lr=auto" in told("fedavg", "local", "alone-linear")
    assert told("fedavg", "alone-linear", lr=0.3) == "", "one of them has a rate"
    assert told("fedavg", "local", lr="auto").startswith("Learning rates chosen on validation rows")


def test_a_network_needs_a_number() -> None:
    with pytest.raises(InputError, match="simulation"):
        build({"method": "fedavg", "training": {"lr": "auto"}})
