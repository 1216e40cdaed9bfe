from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparsona.errors import InputError
from sparsona.studies.choosing import Limits, account, race
from sparsona.studies.contest import Contest, Runs
from sparsona.studies.declared import declare

NAMES = ("local", "fedavg", "fedavg-ft", "fedspa", "fedprox", "ditto", "spfl")
SETTINGS = {"clients": 3, "rounds": 5, "engine": "inprocess"}


def runs_in(folder: Path, names: tuple[str, ...] = NAMES, **settings: Any) -> Runs:
    return Runs(declare(folder, Contest(names, (0,), {**SETTINGS, **settings}), resume=folder.exists()), folder)


def test_a_third_goes_on_and_local_with_it(tmp_path: Path) -> None:
    runs = runs_in(tmp_path / "race")
    history = race(runs, 5, Limits())
    assert [stage.rounds for stage in history] == [1, 2, 5]
    assert len(history[0].standings) == 7
    assert len(history[1].standings) in (3, 4), "three, and local if it is not among them"
    for stage in history:
        assert "local" in [standing.contender for standing in stage.standings]
        scores = [standing.score for standing in stage.standings]
        assert scores == sorted(scores, reverse=True)
    finished = {one.contender for one in history[-1].standings}
    for name in NAMES:
        assert (runs.path(name, 0) / "summary.json").exists() == (name in finished)
    assert race(runs_in(tmp_path / "race"), 5, Limits()) == history, "looked at again, the race is the same"
    lines = account(history, "accuracy")
    assert lines[0].startswith("Until round 1: 7 methods, ")


def test_who_sends_too_much_leaves_with_the_reason(tmp_path: Path) -> None:
    history = race(runs_in(tmp_path / "race", ("local", "fedavg", "fedspa")), 5, Limits(mb_per_round=0.017))
    assert "MB a client and round, 0.017 are allowed" in history[0].left["fedavg"]
    assert {one.contender for one in history[-1].standings} == {"local", "fedspa"}
    with pytest.raises(InputError, match="no method is left in the race"):
        race(runs_in(tmp_path / "other", ("local", "fedavg")), 5, Limits(mb_per_round=1e-6))


def test_with_a_privacy_budget_methods_that_refuse_leave_with_the_reason_and_the_others_keep_to_it(
    tmp_path: Path,
) -> None:
    names = ("local", "fedavg", "fedala", "heterofl")
    runs = runs_in(tmp_path / "race", names, rounds=2, privacy={"epsilon": 8.0})
    history = race(runs, 2, Limits())
    assert "stops by raw losses" in history[0].left["fedala"]
    assert "weight transform" in history[0].left["heterofl"]
    assert any("fedala left: " in line and "raw losses" in line for line in account(history, "accuracy"))
    finished = {one.contender for one in history[-1].standings}
    assert finished == {"local", "fedavg"}
    for name in finished:
        summary = json.loads((runs.path(name, 0) / "summary.json").read_text())
        assert 0 < summary["privacy"]["largest"] <= 8
    for name in ("fedala", "heterofl"):
        assert not (runs.path(name, 0) / "records.jsonl").exists(), "nothing is trained past the budget"
