"""Contests: which runs there are, each in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparsona.errors import RunError
from sparsona.studies.contest import Contest, ContestWatcher, Runs, declare, measured_groups, run_contest

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
    assert run_contest(runs, ContestWatcher()) == {}
    groups = measured_groups(runs)
    options = [group[0].settings["options"]["mu"] for group in groups.values()]
    assert options == [0.01, 10.0]


def test_what_is_refused_leaves_the_study_as_it_was(tmp_path: Path) -> None:
    contest = declare(tmp_path / "s", Contest(("local",), (0,), SETTINGS), False)
    assert run_contest(Runs(contest, tmp_path / "s"), ContestWatcher()) == {}
    with pytest.raises(RunError, match=r"training\.lr differs"):
        declare(tmp_path / "s", Contest(("local",), (0,), set=("lr=5",)), True)
    again = declare(tmp_path / "s", Contest(("local",), (0,)), True)
    assert again == contest
    assert run_contest(Runs(again, tmp_path / "s"), ContestWatcher()) == {}
