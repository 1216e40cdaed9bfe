"""Choose a method: a race by successive halving, judged by validation data only.

All contenders start. After a ninth of the rounds the better third continues, after a third of the rounds a third of
these, which run to the end. A contender that sends more or takes longer than allowed leaves. Methods that train alone
always run to the end, because joining is measured against the best of them. A run continues from its checkpoint, so no
round is computed twice.
"""

import math
from dataclasses import dataclass, field, replace

from sparsona.errors import InputError
from sparsona.experiment import build, without_auto
from sparsona.many import StopCondition
from sparsona.report.comparison import LOCAL, trains_alone
from sparsona.report.measured import MeasuredRun, mean_score
from sparsona.report.progress import Bar
from sparsona.report.words import score_text
from sparsona.studies.contest import Runs, split_contender, take_on
from sparsona.words import counted

SHARE = 3
"""One in `SHARE` contenders continues."""
STAGES = 3
BEATEN = "others scored more"


@dataclass(frozen=True)
class Limits:
    """The limits of a race: MB per client and round, up and down, and simulated seconds in total."""

    mb_per_round: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class ContenderScore:
    """A contender after a stage: mean validation score, MB per client and round, total simulated seconds."""

    contender: str
    score: float
    mb_per_round: float
    seconds: float


@dataclass(frozen=True)
class Stage:
    """One stage: its last round, the contenders, best first, and those that left, with reasons."""

    rounds: int
    standings: tuple[ContenderScore, ...]
    left: dict[str, str] = field(default_factory=dict)


def stages_of(rounds: int) -> list[int]:
    """Return the rounds at which stages end.

    >>> stages_of(20), stages_of(3), stages_of(1)
    ([3, 7, 20], [1, 3], [1])
    """
    return sorted({math.ceil(rounds / SHARE**k) for k in range(STAGES)})


def race(runs: Runs, rounds: int, limits: Limits, bar: Bar | None = None) -> tuple[Stage, ...]:
    """Run the race; the winner is first in the last stage."""
    for contender in runs.contest.contenders:
        settings = runs.settings(contender, runs.contest.seeds[0])
        if ":" in contender:  # what the user has set for it alone is wrong or right; who does not fit the rest leaves
            build(without_auto(settings)[0], contender)
    first = runs.prepare(LOCAL, runs.contest.seeds[0])
    runs.contest.keep(runs.folder)
    remaining = list(runs.contest.contenders)
    alone = {contender for contender in remaining if trains_alone(split_contender(contender)[0])}
    history: list[Stage] = []
    sign = 1 if first.setup.objective.higher_is_better else -1
    for number, until in enumerate(stages := stages_of(rounds)):
        standings: list[ContenderScore] = []
        left: dict[str, str] = {}
        part = replace(first, seconds=first.seconds * until / rounds)
        failed = take_on(runs, remaining, part, bar, StopCondition(rounds=until))
        for contender in remaining:
            each = [runs.measured(contender, seed) for seed in runs.contest.seeds]
            found = [run for run in each if run is not None and run.measurements]
            reason = failed.get(contender) or next(
                (run.diverged for run in each if run is not None and run.diverged), ""
            )
            if len(found) < len(each):
                left[contender] = reason or "it was not measured: set --eval-every to 1"
                continue
            standing = _standing(contender, found, rounds, math.inf if contender in alone else until)
            reason = reason or ("" if contender in alone else _too_much(standing, limits))
            if reason:
                left[contender] = reason
            else:
                standings.append(standing)
        if all(standing.contender in alone for standing in standings):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left.items())[:3])
            fix = "" if limits == Limits() else ": allow more"
            raise InputError(f"no method is left in the race ({reasons}){fix}")
        standings.sort(key=lambda one: (math.isnan(one.score), -sign * one.score, one.mb_per_round))
        joined = [one.contender for one in standings if one.contender not in alone]
        goes_on = {*joined[: max(2, math.ceil(len(joined) / SHARE))], *alone}
        if number + 1 < len(stages):
            remaining = [one.contender for one in standings if one.contender in goes_on]
            left |= {one.contender: BEATEN for one in standings if one.contender not in goes_on}
        history.append(Stage(until, tuple(standings), left))
    return tuple(history)


def _standing(contender: str, found: list[MeasuredRun], rounds: int, until: float) -> ContenderScore:
    """Return a contender's score after `until` rounds, even if its run has gone further."""
    ends = [next((m for m in reversed(run.measurements) if m.round <= until), run.measurements[0]) for run in found]
    score = sum(mean_score(end.validation["pre"]) for end in ends) / len(ends)
    mb = sum(end.bytes / 1e6 / len(found[0].traffic) / end.round for end in ends) / len(ends)
    return ContenderScore(contender, score, mb, sum(end.seconds / end.round * rounds for end in ends) / len(ends))


def _too_much(standing: ContenderScore, limits: Limits) -> str:
    if limits.mb_per_round is not None and standing.mb_per_round > limits.mb_per_round:
        return f"{standing.mb_per_round:.3g} MB a client and round, {limits.mb_per_round:g} are allowed"
    if limits.seconds is not None and standing.seconds > limits.seconds:
        return f"it takes {standing.seconds:.3g} simulated seconds, {limits.seconds:g} are allowed"
    return ""


def account(history: tuple[Stage, ...], metric: str) -> list[str]:
    """Describe the race in sentences."""
    out = []
    for stage in history:
        best = stage.standings[0]
        gone = {name: reason for name, reason in stage.left.items() if reason != BEATEN}
        out.append(
            f"Until round {stage.rounds}: {counted(len(stage.standings) + len(gone), 'method')}, "
            f"{best.contender} led with {score_text(best.score, metric)} on validation data."
        )
        out += [f"{name} left: {reason}." for name, reason in gone.items()]
    return out
