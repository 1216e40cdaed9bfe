"""What a claim would cost: the cheapest command, its time in words, and the data that come first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparsona.reproduce import Case, Grid, Size
from sparsona.reproduce._paper import TUNING
from sparsona.reproduce._price import Price


def cases(size: Size) -> Iterator[Case]:
    for seed in {"quick": (1,), "day": (), "whole": (1, 2), "paper": (1, 2)}[size]:
        for row in ("a", "a-b", *(["c"] if size == "paper" else [])):
            data = "emnist:letters" if row == "c" else "mnist"
            settings = {"data": data, "options": {}, "rounds": 100, "seed": seed}
            grid = Grid("training.lr", (0.1, 0.2), 10) if row == "a-b" else None
            yield Case(f"{row}-{seed}", "table", settings, row=row, grid=grid)


PRICE = Price("study", cases, lambda case: case.settings["rounds"] / 100)


def test_the_first_size_that_has_the_rows() -> None:
    assert PRICE.of_rows("a") == "`sparsona reproduce study --size quick --only 'a-1'`: about 60 CPU minutes"
    assert PRICE.of_rows("a", seeds=2) == "`sparsona reproduce study --only 'a-[12]'`: about 2 CPU hours"
    assert "--size paper" in PRICE.of_rows("a", at_least="paper")
    with pytest.raises(LookupError, match="3 seeds of a"):
        PRICE.of_rows("a", seeds=3)


def test_several_patterns_and_again() -> None:
    found = PRICE.of_rows("a", "a-b", "a", seeds=2, again=True)
    assert found.startswith("`sparsona reproduce study --only 'a-[12]' --again`, then `--only 'a-b-[12]'`: ")
    assert "--only 'a*'`: about 2.2 CPU hours" in PRICE.of_rows("a", "a-b", only=["a*"])


def test_trials_are_counted_once_a_row() -> None:
    chosen = PRICE.chosen("whole", "a-b*")
    assert PRICE.in_all(chosen) == pytest.approx(2 + 2 * 0.1)
    assert [trial.name for trial in chosen[0].trials([1])] == ["tune-a-b-0.1", "tune-a-b-0.2"]
    assert {trial.table for trial in chosen[0].trials([1])} == {TUNING}
    assert not PRICE.chosen("whole", "a-1")[0].trials([1])


def test_data_that_are_not_everywhere_come_first() -> None:
    assert PRICE.of_rows("c").endswith(": about 2 CPU hours, after `sparsona data get emnist`")
    public = {"data": "femnist", "options": {"public": "emnist:byclass"}, "rounds": 1}
    price = Price("study", lambda size: [Case("d", "table", public)], PRICE.hours)
    assert price.of_rows("d").endswith(
        "after `sparsona data get emnist` and `sparsona data get femnist` (which says how to make it)"
    )
