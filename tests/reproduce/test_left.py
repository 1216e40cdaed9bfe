"""What a command would still run: counted before it is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparsona.cli import app
from sparsona.errors import InputError
from sparsona.reproduce import Case, Grid, Paper, left
from sparsona.reproduce._left import left_of
from sparsona.reproduce._paper import TUNING
from sparsona.reproduce._results import Results, digest_of

GRID = Grid("training.lr", (0.1, 0.2), 5)
CASES = [
    *(Case(f"a-{seed}", "t", {"data": "digits", "options": {}, "seed": seed}, row="a", grid=GRID) for seed in (1, 2)),
    Case("a-again-1", "t", {"data": "digits", "options": {}, "seed": 1}, row="a-again", grid=GRID),
    Case("b", "t", {"data": "digits", "options": {"mu": 1}, "seed": 1}),
]
PAPER = Paper("a paper", CASES, hours=lambda case: 0.1 if case.table == TUNING else 2.0)


def kept(*runs: tuple[Case, float]) -> Results:
    """Results of these runs, each with its score on validation samples."""
    lines = {
        case.name: {"settings": digest_of(case.identity), "validation": {"pre": score}, "seed": case.seed}
        for case, score in runs
    }
    return Results(None, lines)


def test_before_anything_is_run_all_cases_and_their_trials_are_left() -> None:
    found = left_of(PAPER, CASES, Results(None), [])
    assert [case.name for case in found.cases] == [case.name for case in CASES]
    assert len(found.trials) == 4
    assert found.hours == pytest.approx({"a": 4.2, "a-again": 2.2, "b": 2.0})
    assert found.lines() == [
        "4 of 4 runs and 4 trials are left: about 8.4 CPU hours",
        "  a: 2 runs, about 4.2 CPU hours",
        "  a-again: 1 run, about 2.2 CPU hours",
        "  b: 1 run, about 2 CPU hours",
    ]


def test_rows_that_have_chosen_the_same_are_one_run_and_other_sizes_count() -> None:
    trials = kept(*zip(PAPER.trials(CASES[0]), (0.5, 0.6), strict=True))
    found = left_of(PAPER, CASES, trials, [kept((CASES[3], 0.0))])
    assert [case.name for case in found.cases] == ["a-1", "a-2"]
    assert found.trials == ()
    done = kept(*((case.settled(0.2), 0.0) for case in CASES[:2]))
    found = left_of(PAPER, CASES, trials, [done, kept((CASES[3], 0.0))])
    assert found.lines() == ["nothing is left: all 4 runs are kept"]


def test_where_a_trial_is_kept_twice_that_of_the_size_decides() -> None:
    """As in the run itself: another size has other code behind it, perhaps, and another choice."""
    low, high = PAPER.trials(CASES[0])
    own, other = kept((low, 0.6), (high, 0.5)), kept((low, 0.1), (high, 0.5))
    done = kept(*((case.settled(0.1), 0.0) for case in CASES[:2]))
    assert left_of(PAPER, CASES[:2], own, [other, done]).cases == ()
    assert len(left_of(PAPER, CASES[:2], other, [own, done]).cases) == 2


def test_without_known_hours_runs_are_counted() -> None:
    found = left_of(replace(PAPER, hours=None), CASES[2:], Results(None), [])
    assert found.lines() == ["2 of 2 runs and 2 trials are left", "  a-again: 1 run", "  b: 1 run"]


def test_the_command_tells_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["reproduce", "fedspa", "--size", "paper", "--only", "*emnist*-iid-*", "--left"])
    assert found.exit_code == 0, found.output
    assert "CPU hours, after `sparsona data get emnist`" in found.output.splitlines()[0]
    assert "  paper-emnist-letters-iid-fedavg: 3 runs, about " in found.output
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_counted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fedthin is a study"):
        left("fedthin", "quick", results=tmp_path)
    found = CliRunner().invoke(app, ["reproduce", "fedspa", "--left", "--again"])
    assert isinstance(found.exception, InputError)
    with pytest.raises(InputError, match="no case of plga is called"):
        left("plga", "quick", "nothing", tmp_path)
