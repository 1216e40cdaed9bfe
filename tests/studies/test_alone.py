"""Runs that send nothing train until their own score stalls, not for the rounds of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparsona.studies.contest import Contest, ContestWatcher, Runs, run_contest, until_stalled


def test_a_run_alone_trains_until_it_stalls_and_the_others_for_their_rounds(tmp_path: Path) -> None:
    settings = {"clients": 3, "rounds": 2, "training": {"lr": 0.5}}
    runs = Runs(Contest(("local", "fedavg"), (0,), settings), tmp_path)
    assert not run_contest(runs, ContestWatcher())
    alone, joined = (runs.measured(name, 0) for name in ("local", "fedavg"))
    assert alone is not None
    assert joined is not None
    assert joined.rounds == 2
    assert 2 < alone.rounds <= 20
    assert alone.finished
    run_contest(runs, ContestWatcher())
    again = runs.measured("local", 0)
    assert again is not None
    assert again.rounds == alone.rounds


@pytest.mark.parametrize("evaluation", [{"patience": 3}, {"every": 0}])
def test_what_the_user_says_of_its_evaluations_stands(evaluation: dict[str, int]) -> None:
    settings = {"method": "local", "rounds": 5, "evaluation": evaluation}
    assert until_stalled(settings) == settings


def test_rounds_of_its_own_are_not_changed(tmp_path: Path) -> None:
    runs = Runs(Contest(("local:rounds=7",), (0,), {"rounds": 2}), tmp_path)
    assert runs.settings("local:rounds=7", 0)["rounds"] == 7
