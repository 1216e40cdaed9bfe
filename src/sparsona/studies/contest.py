"""A contest: several methods on the same clients, once per seed."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from sparsona.errors import InputError
from sparsona.experiment import assign, merged, rounds_of
from sparsona.experts.fits import is_installed
from sparsona.many import Loader, RunEnded, RunPlan, StopCondition, advance
from sparsona.many.processes import place_for
from sparsona.methods import METHODS
from sparsona.prepare import Prepared
from sparsona.report.compared import score
from sparsona.report.comparison import trains_alone
from sparsona.report.measured import MeasuredRun, mean_score, measure
from sparsona.report.progress import Bar
from sparsona.runs.budget import Budget
from sparsona.studies.declared import Declaration, distinct_names, make_runs

log = logging.getLogger(__name__)
ORIGIN = "the command line"
ALWAYS = ("local", "fedavg-ft")
"""Methods in every comparison: training alone, and the simplest personal method."""
TABLES = ("alone-trees", "alone-linear", "naive")
"""Further methods in every comparison on tables: experts without a net, trained alone, and the constant answer."""
POOLS = ("fedthin:pool=trees+shared", "fedavg:pool=trees+shared")
"""The pools that `choose` races on tables beside all methods: trees that never travel, with a thin or a whole model."""

LONGER_ALONE, PATIENCE_ALONE = 10, 10
"""Limits of a run that sends nothing: rounds, in units of the others', and evaluations without a better score."""


def ways_alone(prepared: Prepared) -> tuple[str, ...]:
    """Return the further baselines alone for these data: none for images and text."""
    inputs = prepared.setup.federation.data.inputs
    if inputs.ndim != 2 or inputs.dtype.kind != "f":
        return ()
    if not is_installed():
        log.warning('alone-trees is left out: it needs LightGBM, pip install "sparsona[trees]"')
        return TABLES[1:]
    return TABLES


def until_stalled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with which a run that sends nothing trains until its validation score stalls.

    The number of rounds limits traffic, so it does not limit this run.

    >>> until_stalled({"method": "local", "rounds": 5})
    {'method': 'local', 'rounds': 50, 'evaluation': {'patience': 10}}
    """
    evaluation = settings.get("evaluation", {})
    if not evaluation.get("every", 1) or "patience" in evaluation:
        return dict(settings)
    patience = {**evaluation, "patience": PATIENCE_ALONE}
    return {**settings, "rounds": LONGER_ALONE * rounds_of(settings), "evaluation": patience}


@dataclass(frozen=True)
class Contest(Declaration):
    """The declaration of a contest: contenders, seeds, common settings, and the budget per run."""

    file = "study.json"
    what = "study"
    contenders: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    set: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)

    def including(self, names: Sequence[str] = ALWAYS) -> Contest:
        """Return the contest with the methods of every comparison added."""
        missing = tuple(name for name in names if name not in self.contenders)
        return replace(self, contenders=(*missing, *self.contenders))

    @property
    def rounds(self) -> int:
        """Return the rounds of the runs that send something."""
        name, _ = split_contender(self.contenders[0])
        return rounds_of(assign({**self.settings, "method": name}, self.set))

    def folder_of(self, contender: str, seed: int) -> str:
        """Return the name of a run's folder, for any text of a contender."""
        plain = {one: re.sub(r"[^A-Za-z0-9.]+", "-", one).strip("-") for one in (*self.contenders, contender)}
        names = distinct_names(plain)
        return f"{names[contender]}-seed{seed}"

    def joined(self, more: Contest) -> Contest:
        """Return this contest, extended by the contenders, seeds and budget of another one."""
        mb, seconds = more.budget.mb, more.budget.seconds
        return Contest(
            tuple(dict.fromkeys((*self.contenders, *more.contenders))),
            tuple(dict.fromkeys((*self.seeds, *more.seeds))),
            merged(self.settings, more.settings),
            tuple(dict.fromkeys((*self.set, *more.set))),
            Budget(self.budget.mb if mb is None else mb, self.budget.seconds if seconds is None else seconds),
        )

    def to_check(self, there: Contest, folder: Path) -> list[RunPlan]:
        """Return all runs if their settings may differ; else each is checked when it is advanced."""
        if (self.settings, self.set) == (there.settings, there.set):
            return []
        return [Runs(self, folder).plan(*pair) for pair in product(self.contenders, self.seeds)]


def split_contender(text: str) -> tuple[str, list[str]]:
    """Split a contender into its method and its own settings.

    >>> split_contender("fedspa:density=[0.2, 0.5],mask_1d=true")
    ('fedspa', ['density=[0.2, 0.5]', 'mask_1d=true'])
    """
    name, _, rest = text.partition(":")
    return name, re.split(r",\s*(?=[A-Za-z_][\w.]*=)", rest) if rest else []


class Runs:
    """The runs of a contest, on data that are loaded once."""

    def __init__(self, contest: Contest, folder: Path) -> None:
        self.contest = contest
        self.folder = folder
        self.loader = Loader()

    def path(self, contender: str, seed: int) -> Path:
        """Return the run directory of a contender and seed."""
        return self.folder / self.contest.folder_of(contender, seed)

    def settings(self, contender: str, seed: int) -> dict[str, Any]:
        """Return all settings of a contender's run for one seed."""
        name, own = split_contender(contender)
        METHODS.check(name)
        try:
            found = assign({**self.contest.settings, "method": name, "seed": seed}, (*self.contest.set, *own))
            return until_stalled(found) if trains_alone(name) and "rounds" not in assign({}, own) else found
        except InputError as error:
            raise InputError(f"{contender}: {error}; what is one method's own is written {name}:KEY=VALUE") from None

    def prepare(self, contender: str, seed: int) -> Prepared:
        """Prepare a contender's run for one seed."""
        return self.loader.prepare(self.settings(contender, seed), ORIGIN)

    def plan(self, contender: str, seed: int, until: StopCondition | None = None) -> RunPlan:
        """Plan a run to its end, to a round, or to the contest's budget."""
        until = until or StopCondition(budget=self.contest.budget)
        return RunPlan(self.path(contender, seed), self.settings(contender, seed), ORIGIN, until)

    def advance(self, contender: str, seed: int, until: StopCondition | None = None) -> None:
        """Continue one run in this process."""
        advance(self.plan(contender, seed, until), self.loader)

    def measured(self, contender: str, seed: int) -> MeasuredRun | None:
        """Return the measurements of a run so far; None if there are none and it has not diverged."""
        path = self.path(contender, seed)
        found = measure(path) if (path / "experiment.toml").exists() and (path / "about.json").exists() else None
        return found if found is not None and (found.measurements or found.diverged) else None


def run_contest(runs: Runs, bar: Bar | None = None) -> dict[str, str]:
    """Execute all runs seed by seed, so that all methods have equally many; return failures with reasons.

    A method that diverges or does not fit the model leaves the contest; the others go on.
    """
    prepared = [runs.prepare(contender, runs.contest.seeds[0]) for contender in runs.contest.contenders]
    runs.contest.keep(runs.folder)
    return take_on(runs, runs.contest.contenders, max(prepared, key=lambda one: one.seconds), bar)


def take_on(
    runs: Runs, contenders: Sequence[str], like: Prepared, bar: Bar | None = None, until: StopCondition | None = None
) -> dict[str, str]:
    """Continue runs of some contenders, seed by seed; `like` is the longest. Return failures with reasons."""
    contest, failed = runs.contest, dict[str, str]()
    pairs = {contest.folder_of(who, seed): (who, seed) for seed in contest.seeds for who in contenders}

    def planned(contender: str, seed: int) -> RunPlan | None:
        alone = trains_alone(split_contender(contender)[0])  # it is in no race: nothing of it travels
        return None if contender in failed else runs.plan(contender, seed, None if alone else until)

    def said(run: RunEnded) -> str:
        contender, seed = pairs[run.name]
        if run.error is not None:
            failed.setdefault(contender, str(run.error))
        found = runs.measured(contender, seed)
        counts = found.last(contest.budget) if found is not None else None
        told = score(mean_score(counts.test["pre"]) if counts is not None else None, like.setup.objective.metric_name)
        told = "diverged" if found is not None and found.diverged else told
        return f"{contender}, seed {seed}: {told}" if until is None else f"{contender}, seed {seed}"

    todo = sum(not runs.plan(*pair).finished for pair in pairs.values())
    engine = str(runs.settings(contest.contenders[0], contest.seeds[0]).get("engine", "auto"))
    place = place_for(like, todo, runs.folder, engine, runs.loader)
    make_runs({name: partial(planned, *pair) for name, pair in pairs.items()}, place, bar or Bar("", 0, False), said)
    return failed


def measured_groups(runs: Runs) -> dict[str, list[MeasuredRun]]:
    """Return the measured runs of each contender, by seed."""
    found = {one: [runs.measured(one, seed) for seed in runs.contest.seeds] for one in runs.contest.contenders}
    groups = {one: [run for run in group if run is not None] for one, group in found.items()}
    return {one: group for one, group in groups.items() if group}
