"""The declaration of a paper: its runs, its claims, and its sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from sparsona.prepare import Prepared
from sparsona.runs.directory import RunDirectory
from sparsona_papers._differences import Runs
from sparsona_papers._verdicts import Claim

Size: TypeAlias = Literal["quick", "day", "whole", "paper"]
"""How much is run: every claim in short runs, an hour or two of two cores; the rows that decide most at a length that
decides, up to a day; every row at that length or at the paper's; and for a cluster what only the paper's own data sets,
nets and lengths can settle."""

SIZES: tuple[Size, ...] = get_args(Size)

Value: TypeAlias = float | tuple[float, ...]
"""A value of a grid: a number, or one number per key."""

LAST_POINTS = ("pre", "post")
"""The points that are measured after the last round. Other points use all rounds, so their trials are evaluated as
often as their case.
"""


@dataclass(frozen=True)
class Grid:
    """A setting that validation data choose before a row's runs: `key` (``training.lr``), one of `values`. Several keys
    are joined by commas; a value then has a number for each.

    Each value has a run of `rounds` rounds with each of the row's first `seeds`, in which the share `validation` of the
    training samples is kept back; the mean over clients and seeds at `point` decides, and of equals the first. A point
    is `pre`, `post`, or one that the paper's `validation` reads. Test samples have no part in it. Rows that share a
    grid have the same budget.
    """

    key: str
    values: tuple[Value, ...]
    rounds: int
    point: str = "pre"
    validation: float = 0.2
    seeds: int = 1

    def named(self, value: Value) -> dict[str, float]:
        """
        >>> Grid("training.lr,options.lam", ((0.1, 3),), 5).named((0.1, 3))
        {'training.lr': 0.1, 'options.lam': 3}
        """
        return dict(zip(self.key.split(","), value if isinstance(value, tuple) else (value,), strict=True))

    def applied(self, settings: Mapping[str, Any], value: Value) -> dict[str, Any]:
        """The settings with this value in them."""
        out = dict(settings)
        for name, number in self.named(value).items():
            section, _, key = name.rpartition(".")
            out[section] = {**out.get(section, {}), key: number}
        return out


TUNING = "tuning"
"""The table of the runs that choose a setting."""


@dataclass(frozen=True)
class Case:
    """One run: its directory's name, the table it stands in, the settings, and the paper's number for it, if any.

    Runs of the same `row` differ in their seed only. `grid` leaves one setting to validation data. `cost` orders the
    cases: the samples that it trains on, or anything that grows with its time.
    """

    name: str
    table: str
    settings: Mapping[str, Any]
    paper: float | None = None
    cost: float = 0.0
    row: str = ""
    grid: Grid | None = None

    @property
    def of(self) -> str:
        """The row of the table that the case belongs to."""
        return self.row or self.name

    @property
    def seed(self) -> int:
        """The case's seed."""
        return int(self.settings.get("seed", 0))

    @property
    def identity(self) -> dict[str, Any]:
        """Return the settings, without those that every excerpt has."""
        return {key: value for key, value in self.settings.items() if key != "columns"}

    def settled(self, value: Value) -> Case:
        """Return the case with one value of its grid; its identity does not depend on how the value was chosen."""
        return self if self.grid is None else replace(self, settings=self.grid.applied(self.settings, value), grid=None)

    def trials(self, seeds: Iterable[int]) -> list[Case]:
        """Return the trials that choose the row's setting, for the first seeds of `seeds`, value by value; none without
        a grid.
        """
        if self.grid is None:
            return []
        first = sorted(set(seeds))[: self.grid.seeds]
        return [self._trial(self.grid, value, seed, first[0]) for value in self.grid.values for seed in first]

    def _trial(self, grid: Grid, value: Value, seed: int, usual: int) -> Case:
        settings = grid.applied({**self.settings, "rounds": grid.rounds, "seed": seed}, value)
        settings["split"] = {**settings.get("split", {}), "validation": grid.validation}
        if grid.point in LAST_POINTS:
            settings["evaluation"] = {"every": 0}
        name = f"tune-{self.of}-{'-'.join(f'{number:g}' for number in grid.named(value).values())}"
        name += "" if seed == usual else f"-seed-{seed}"
        return replace(self, name=name, table=TUNING, settings=settings, paper=None, row=self.of, grid=None)


Extra: TypeAlias = Callable[[RunDirectory, Prepared], Mapping[str, float]]
"""Reads further numbers for a paper's claims from a finished run."""


Kept: TypeAlias = Mapping[str, dict[str, Any]]
"""The kept results of runs, by name."""


@dataclass(frozen=True)
class Paper:
    """A paper's runs, its claims, and its drawings: each takes the folder of the runs and the file to write.

    `tables` are made of the runs that are kept: markdown, by title. `extra` reads numbers from a finished run, `watch`
    from a checkpoint after every round. `validation` reads further validation scores by which a grid may choose.
    """

    title: str
    cases: Sequence[Case]
    claims: Sequence[Claim] = ()
    drawings: Mapping[str, Callable[[Path, Path], bool]] = field(default_factory=dict)
    tables: Mapping[str, Callable[[Runs], str]] = field(default_factory=dict)
    extra: Extra | None = None
    validation: Extra | None = None
    watch: Callable[[RunDirectory], Mapping[str, float]] | None = None

    def trials(self, case: Case) -> list[Case]:
        """The runs that choose a setting for a case's row, the same for all of its seeds."""
        return case.trials(c.seed for c in self.cases if c.of == case.of)

    def with_seeds_from(self, first: int) -> Paper:
        """Return the paper with other seeds, beginning with `first`. Names stay the same.

        >>> Paper("", [Case("a-1", "t", {"seed": 1}), Case("a-2", "t", {"seed": 2})]).with_seeds_from(11).cases[1].seed
        12
        """
        shift = first - min((case.seed for case in self.cases), default=first)
        cases = [replace(case, settings={**case.settings, "seed": case.seed + shift}) for case in self.cases]
        return replace(self, cases=cases)
