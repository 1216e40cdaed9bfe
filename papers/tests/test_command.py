"""What would settle a claim: the shortest command, and the data that come first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparsona_papers._command import Command
from sparsona_papers._paper import TUNING, Case, Grid, Size


def cases(size: Size) -> Iterator[Case]:
    for seed in {"quick": (1,), "day": (), "whole": (1, 2), "paper": (1, 2)}[size]:
        for row in ("a", "a-b", *(["c"] if size == "paper" else [])):
            data = "emnist:letters" if row == "c" else "mnist"
            settings = {"data": data, "options": {}, "rounds": 100, "seed": seed}
            grid = Grid("training.lr", (0.1, 0.2), 10) if row == "a-b" else None
            yield Case(f"{row}-{seed}", "table", settings, row=row, grid=grid)


COMMAND = Command("study", cases)


def test_the_first_size_that_has_the_rows() -> None:
    assert COMMAND.of_rows("a") == "`sparsona reproduce study --size quick --only 'a-1'`"
    assert COMMAND.of_rows("a", seeds=2) == "`sparsona reproduce study --only 'a-[12]'`"
    assert "--size paper" in COMMAND.of_rows("a", at_least="paper")
    with pytest.raises(LookupError, match="3 seeds of a"):
        COMMAND.of_rows("a", seeds=3)


def test_several_patterns_and_again() -> None:
    found = COMMAND.of_rows("a", "a-b", "a", seeds=2, again=True)
    assert found == "`sparsona reproduce study --only 'a-[12]' --again`, then `--only 'a-b-[12]'`"
    assert "--only 'a*'`" in COMMAND.of_rows("a", "a-b", only=["a*"])


def test_trials_are_those_of_a_row_with_a_grid() -> None:
    chosen = COMMAND.chosen("whole", "a-b*")
    assert [trial.name for trial in chosen[0].trials([1])] == ["tune-a-b-0.1", "tune-a-b-0.2"]
    assert {trial.table for trial in chosen[0].trials([1])} == {TUNING}
    assert not COMMAND.chosen("whole", "a-1")[0].trials([1])


def test_data_that_are_not_everywhere_come_first() -> None:
    assert COMMAND.of_rows("c").endswith("`, after `sparsona data get emnist`")
    public = {"data": "femnist", "options": {"public": "emnist:byclass"}, "rounds": 1}
    command = Command("study", lambda size: [Case("d", "table", public)])
    assert command.of_rows("d").endswith(
        "after `sparsona data get emnist` and `sparsona data get femnist` (which says how to make it)"
    )
