"""What a command would still run: counted before it is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparsona.cli import app
from sparsona.errors import InputError
from sparsona_papers._cases import Cases
from sparsona_papers._paper import Case, Grid, Paper
from sparsona_papers._registry import MissingRuns
from sparsona_papers._results import Results, digest_of
from sparsona_papers.reproduce import left

GRID = Grid("training.lr", (0.1, 0.2), 5)
CASES = [
    *(Case(f"a-{seed}", "t", {"data": "digits", "options": {}, "seed": seed}, row="a", grid=GRID) for seed in (1, 2)),
    Case("a-again-1", "t", {"data": "digits", "options": {}, "seed": 1}, row="a-again", grid=GRID),
    Case("b", "t", {"data": "digits", "options": {"mu": 1}, "seed": 1}),
]
PAPER = Paper("a paper", CASES)


def kept(*runs: tuple[Case, float]) -> Results:
    """Results of these runs, each with its score on validation samples."""
    lines = {
        case.name: {"settings": digest_of(case.identity), "validation": {"pre": score}, "seed": case.seed}
        for case, score in runs
    }
    return Results(None, lines)


def left_of(only: str, own: Results, *others: Results) -> MissingRuns:
    return Cases("a-paper", "quick", PAPER).left(only, own, others)


def test_before_anything_is_run_all_cases_and_their_trials_are_left() -> None:
    found = left_of("*", Results(None))
    assert found.names == {"a": ["a-1", "a-2"], "a-again": ["a-again-1"], "b": ["b"]}
    assert found.trials == 4
    assert found.lines() == ["4 of 4 runs and 4 trials are left", "  a: 2 runs", "  a-again: 1 run", "  b: 1 run"]


def test_rows_that_have_chosen_the_same_are_one_run_and_other_sizes_count() -> None:
    trials = kept(*zip(PAPER.trials(CASES[0]), (0.5, 0.6), strict=True))
    found = left_of("*", trials, kept((CASES[3], 0.0)))
    assert found.names == {"a": ["a-1", "a-2"]}
    assert found.trials == 0
    done = kept(*((case.settled(0.2), 0.0) for case in CASES[:2]))
    assert left_of("*", trials, done, kept((CASES[3], 0.0))).lines() == ["nothing is left: all 4 runs are kept"]


def test_where_a_trial_is_kept_twice_that_of_the_size_decides() -> None:
    """As in the run itself: another size has other code behind it, perhaps, and another choice."""
    low, high = PAPER.trials(CASES[0])
    own, other = kept((low, 0.6), (high, 0.5)), kept((low, 0.1), (high, 0.5))
    done = kept(*((case.settled(0.1), 0.0) for case in CASES[:2]))
    assert left_of("a-?", own, other, done).names == {}
    assert left_of("a-?", other, own, done).names == {"a": ["a-1", "a-2"]}


def test_the_command_tells_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["reproduce", "fedspa", "--size", "paper", "--only", "*emnist*-iid-*", "--left"])
    assert found.exit_code == 0, found.output
    assert found.output.splitlines()[0].endswith("are left, after `sparsona data get emnist`")
    assert "  paper-emnist-letters-iid-fedavg: 3 runs\n" in found.output
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_counted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fedthin does not come in the size day"):
        left("fedthin", "day", results=tmp_path)
    found = CliRunner().invoke(app, ["reproduce", "fedspa", "--left", "--again"])
    assert isinstance(found.exception, InputError)
    with pytest.raises(InputError, match="no case of plga is called"):
        left("plga", "quick", "nothing", tmp_path)
