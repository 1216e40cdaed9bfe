"""Contests: which runs there are, each in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparsona.errors import RunError
from sparsona.studies.contest import Contest, Runs, measured_groups, run_contest, until_stalled
from sparsona.studies.declared import declare

SETTINGS = {"clients": 3, "rounds": 1, "engine": "inprocess"}


@pytest.mark.parametrize("pair", [("mu=1e-2", "mu=1e+1"), ("mu=3", "mu=+3")])
def test_contenders_with_the_same_letters_have_folders_of_their_own(pair: tuple[str, str]) -> None:
    contest = Contest(tuple(f"fedprox:{setting}" for setting in pair), (0, 1))
    folders = [contest.folder_of(contender, seed) for contender in contest.contenders for seed in contest.seeds]
    assert len(set(folders)) == 4
    assert folders[0] == Contest(contest.contenders[:1], (0,)).folder_of(contest.contenders[0], 0), "as before"


def test_each_contender_has_its_own_run(tmp_path: Path) -> None:
    """Two that differ by a sign only are two runs, not one that is shown twice."""
    contest = declare(tmp_path / "s", Contest(("fedprox:mu=1e-2", "fedprox:mu=1e+1"), (0,), SETTINGS), False)
    runs = Runs(contest, tmp_path / "s")
    assert run_contest(runs) == {}
    groups = measured_groups(runs)
    options = [group[0].settings["options"]["mu"] for group in groups.values()]
    assert options == [0.01, 10.0]


def test_what_is_refused_leaves_the_study_as_it_was(tmp_path: Path) -> None:
    contest = declare(tmp_path / "s", Contest(("local",), (0,), SETTINGS), False)
    assert run_contest(Runs(contest, tmp_path / "s")) == {}
    with pytest.raises(RunError, match=r"training\.lr differs"):
        declare(tmp_path / "s", Contest(("local",), (0,), set=("lr=5",)), True)
    again = declare(tmp_path / "s", Contest(("local",), (0,)), True)
    assert again == contest
    assert run_contest(Runs(again, tmp_path / "s")) == {}


def test_a_run_alone_trains_until_it_stalls_and_the_others_for_their_rounds(tmp_path: Path) -> None:
    settings = {"clients": 3, "rounds": 2, "training": {"lr": 0.5}}
    runs = Runs(Contest(("local", "fedavg"), (0,), settings), tmp_path)
    assert not run_contest(runs)
    alone, joined = (runs.measured(name, 0) for name in ("local", "fedavg"))
    assert alone is not None
    assert joined is not None
    assert joined.rounds == 2
    assert 2 < alone.rounds <= 20
    assert alone.finished
    run_contest(runs)
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
