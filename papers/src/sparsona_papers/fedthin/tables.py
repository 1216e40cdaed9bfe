"""The study's tables and its verdicts, made of the cells that are there: a row that lacks one is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sparsona.report.statistics import interval
from sparsona_papers._paper import Kept
from sparsona_papers.fedthin.analysis import (
    MODELS,
    Curve,
    Effect,
    Scores,
    area,
    bootstrap,
    bytes_to,
    charged,
    not_inferior,
)
from sparsona_papers.fedthin.cells import correct_of, curve_of
from sparsona_papers.fedthin.plan import (
    ALONE,
    BESIDE,
    BY,
    OURS,
    RIVALS,
    Cell,
    Choice,
    StudyPlan,
    chosen,
    finals,
    longest,
    trials,
    tuning,
)
from sparsona_papers.fedthin.significance import holm, losers
from sparsona_papers.fedthin.tasks import StudyTask

Reading = Callable[[Curve], Scores]
"""One number per client of a run."""
LEVEL = 0.05
UNPAID = (OURS, BESIDE, "fedpse", "fedstc")
"""Rows whose clients make the initial model from the seed instead of receiving it."""


def report(kept: Kept, plan: StudyPlan) -> str:
    """The whole study as markdown."""
    cells = [*tuning(plan), *finals(kept, plan), *longest(kept, plan)]
    done = sum(cell.name in kept for cell in cells)
    hours = sum([run.get("cpu_seconds") or run.get("seconds") or 0.0 for run in kept.values()]) / 3600
    lines = [
        f"`sparsona reproduce fedthin`: {done} of {len(cells)} known runs are finished, {hours:.2f} CPU hours.",
        "",
    ]
    for share in plan.shares:
        lines += [f"## {share:.0%} of the clients in a round", "", *_verdicts(kept, plan, share)]
        for task in plan.tasks:
            lines += _task(kept, plan, task, share)
    return "\n".join(lines) + "\n"


def runs(kept: Kept, plan: StudyPlan, task: StudyTask, share: float, row: str, by: Choice, rounds: int) -> list[Any]:
    """The chosen trial's runs by seed; nothing unless all seeds are there."""
    trial = chosen(kept, task, share, row, plan, by)
    names = [Cell(task, share, row, trial or 0, seed, rounds, plan).name for seed in plan.seeds]
    if trial is None or any(name not in kept for name in names):
        return []
    some = next((run for name, run in kept.items() if name.startswith(f"{task.name}-") and "tests" in run), {})
    told = {key: some[key] for key in ("tests", "guess") if key in some}
    return [{**told, **kept[name]} for name in names]


def scores(found: Sequence[Mapping[str, Any]], read: Reading) -> Scores:
    """Return a reading of runs as seeds x clients. A run that diverged has the score of guessing."""
    return np.array(
        [np.full(len(run["tests"]), run["guess"]) if "diverged" in run else read(curve_of(run)) for run in found]
    )


def at_end(curve: Curve) -> Scores:
    """The scores after the last round."""
    return np.asarray(curve.scores[-1])


def at_round(rounds: int) -> Reading:
    """Return the score after `round` rounds of a run that measured every round."""
    return lambda curve: np.asarray(curve.scores[min(rounds, len(curve.scores)) - 1])


def differences(
    kept: Kept, plan: StudyPlan, share: float, rival: str, by: Choice, read: Reading, unpaid: Reading | None = None
) -> dict[str, Scores]:
    """Return FedThin less a rival, by task. `local` sends nothing, so its last score counts at any number of bytes.
    Rows that make the initial model themselves are read by `unpaid`, if given.
    """

    def reading(row: str) -> Reading:
        return at_end if row == ALONE else unpaid if unpaid and row in UNPAID else read

    out: dict[str, Scores] = {}
    for task in plan.tasks:
        mine, theirs = (runs(kept, plan, task, share, row, by, plan.rounds) for row in (OURS, rival))
        if mine and theirs:
            out[task.name] = scores(mine, reading(OURS)) - scores(theirs, reading(rival))
    return out


def _verdicts(kept: Kept, plan: StudyPlan, share: float) -> list[str]:
    """The preregistered analyses of one participation, rival by rival and as one verdict each."""
    rivals = [rival for rival in RIVALS if rival in plan.rows]
    by_area = {rival: differences(kept, plan, share, rival, "area", area) for rival in rivals}
    at_last = {rival: differences(kept, plan, share, rival, "accuracy", at_end) for rival in rivals}
    if any(len(gaps) < len(plan.tasks) for gaps in (*by_area.values(), *at_last.values())):
        return ["Not all runs are there, so nothing is tested.", ""]
    paid = {
        rival: bootstrap(differences(kept, plan, share, rival, "area", area, lambda curve: area(charged(curve, share))))
        for rival in rivals
    }
    ratios = {rival: _ratio(kept, plan, share, rival) for rival in rivals}
    return [
        "Points of accuracy, FedThin less the rival, with 95 % intervals: by the bootstrap, and under `tasks` "
        "Student's over the tasks' means, with the number of tasks where FedThin is ahead.",
        "",
        *_areas(by_area, paid),
        f"After {plan.rounds} rounds:",
        "",
        *_accuracies(at_last, ratios),
        f"**Harm**: {_harm(kept, plan, share)}.",
        "",
    ]


def _areas(gaps: Mapping[str, Mapping[str, Scores]], paid: Mapping[str, Effect]) -> list[str]:
    """Return the first analysis: areas with Holm's correction, and columns beyond the protocol."""
    effects = {rival: bootstrap(own) for rival, own in gaps.items()}
    corrected = dict(zip(effects, holm([effect.p for effect in effects.values()]), strict=True))
    larger = [rival for rival, effect in effects.items() if corrected[rival] < LEVEL and effect.value > 0]
    smaller = [rival for rival, effect in effects.items() if corrected[rival] < LEVEL and effect.value < 0]
    return [
        f"Area over log bytes from {MODELS[0]:g} to {MODELS[1]:g} float32 models a client:",
        "",
        "| rival | area | Holm p | supported | if all paid for the first model | tasks |",
        "|---|---|---|---|---|---|",
        *(
            f"| {rival} | {effect} | {corrected[rival]:.4f} | {_yes(rival in larger)} | {paid[rival]} "
            f"| {_over_tasks(gaps[rival])} |"
            for rival, effect in effects.items()
        ),
        "",
        f"**Area**: FedThin's is larger against {len(larger)} of {len(effects)} rivals and smaller against "
        f"{len(smaller)}; the others are undecided.",
        "",
    ]


def _accuracies(gaps: Mapping[str, Mapping[str, Scores]], ratios: Mapping[str, str]) -> list[str]:
    """Return the second and third analysis: bytes to reach `local`, and non-inferiority of FedThin."""
    effects = {rival: bootstrap(own) for rival, own in gaps.items()}
    level = {rival: not_inferior(effect.low) for rival, effect in effects.items()}
    return [
        "| rival | accuracy | not inferior by 0.5 points | tasks | bytes to `local`, rival : FedThin |",
        "|---|---|---|---|---|",
        *(
            f"| {rival} | {effect} | {_yes(level[rival])} | {_over_tasks(gaps[rival])} | {ratios[rival]} |"
            for rival, effect in effects.items()
        ),
        "",
        f"**Not inferior** to {sum(level.values())} of {len(level)} rivals; to all: {_yes(all(level.values()))}.",
        "",
    ]


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def _over_tasks(gaps: Mapping[str, Scores]) -> str:
    """Return the number of tasks above zero, and Student's interval of their mean."""
    means = [float(own.mean()) for own in gaps.values()]
    found, ahead = interval(means), f"{sum(mean > 0 for mean in means)} of {len(means)}"
    if found is None or found.half is None:
        return ahead
    return f"{ahead} ({100 * found.low:+.2f} to {100 * found.high:+.2f})"


def _harm(kept: Kept, plan: StudyPlan, share: float) -> str:
    """Return the mean share of losers over tasks: with FedThin, and with `local` against another seed of itself."""
    told = []
    for row, name in ((OURS, "with FedThin"), (ALONE, "with `local` of another seed, which is the chance level")):
        found = [
            _losing(*(runs(kept, plan, task, share, which, "accuracy", plan.rounds) for which in (row, ALONE)))
            for task in plan.tasks
        ]
        told.append(f"{'-' if None in found else f'{np.mean([x for x in found if x is not None]):.1%}'} {name}")
    return "clients significantly worse off than with `local`, mean over tasks: " + ", ".join(told)


def _ratio(kept: Kept, plan: StudyPlan, share: float, rival: str) -> str:
    """Return a rival's bytes to the final score of `local`, relative to FedThin's: the geometric mean over tasks where
    both reach it, and the tasks where each does.
    """
    if rival == ALONE:
        return "-"
    found = {row: [_bytes_to_local(kept, plan, task, share, row) for task in plan.tasks] for row in (OURS, rival)}
    pairs = [(a, b) for a, b in zip(found[OURS], found[rival], strict=True) if math.isfinite(a) and 0 < b < math.inf]
    reached = ", ".join(f"{sum(map(math.isfinite, found[row]))} of {len(plan.tasks)}" for row in (rival, OURS))
    if not pairs:
        return f"- ({reached} reach it)"
    return f"{math.exp(np.mean([math.log(b / a) for a, b in pairs])):.1f} ({reached} reach it)"


def _bytes_to_local(kept: Kept, plan: StudyPlan, task: StudyTask, share: float, row: str) -> float:
    """The mean over seeds of the models' worth of bytes to the final accuracy of `local`, its mean over seeds; infinite
    if a seed never gets there, and for `local` itself, which sends nothing."""
    if row == ALONE:
        return math.inf
    own = runs(kept, plan, task, share, row, "area", plan.rounds)
    alone = runs(kept, plan, task, share, ALONE, "area", plan.rounds)
    if not own or not alone or any("diverged" in run for run in own):
        return math.inf
    target = float(scores(alone, at_end).mean())
    return float(np.mean([bytes_to(curve_of(run), target) for run in own]))


def _task(kept: Kept, plan: StudyPlan, task: StudyTask, share: float) -> list[str]:
    alone = runs(kept, plan, task, share, ALONE, "accuracy", plan.rounds)
    kind = "natural clients" if task.natural else "constructed clients"
    scored = ("area", *(f"after {count}" for count in (plan.tuning, plan.rounds, plan.longest)))
    columns = ("method", *scored, "models sent", "to `local`", "losers", "GFLOP", "chosen")
    lines = [f"### {task.name}, {kind}, {share:.0%}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in plan.rows:
        cells = {by: runs(kept, plan, task, share, row, by, plan.rounds) for by in BY}
        if not all(cells.values()):
            continue
        best, long = cells["accuracy"], runs(kept, plan, task, share, row, "accuracy", plan.longest)
        picked = [chosen(kept, task, share, row, plan, by) for by in BY]
        told = [", ".join(f"{k}={v}" for k, v in trials(row, plan)[trial or 0].items()) for trial in picked]
        to_local = _bytes_to_local(kept, plan, task, share, row)
        losing = _losing(best, alone)
        lines.append(
            f"| {row} | {_mean(scores(cells['area'], at_end if row == ALONE else area))} "
            f"| {_mean(scores(best, at_round(plan.tuning)))} | {_mean(scores(best, at_end))} "
            f"| {_mean(scores(long, at_end)) if long else '-'} | {_spent(best)} "
            f"| {'-' if math.isinf(to_local) else f'{to_local:.2f}'} | {'-' if losing is None else f'{losing:.1%}'} "
            f"| {np.mean([run.get('flops', 0) for run in best]) / 1e9:.1f} | {'; '.join(dict.fromkeys(told))} |"
        )
    return [*lines, ""]


def _mean(found: Scores) -> str:
    """The mean over clients and seeds in points, and its standard deviation over the seeds."""
    by_seed = 100 * found.mean(axis=1)
    return f"{by_seed.mean():.2f} ± {by_seed.std(ddof=1):.2f}" if len(by_seed) > 1 else f"{by_seed.mean():.2f}"


def _spent(found: Sequence[Mapping[str, Any]]) -> str:
    spent = [run["spent"][-1] for run in found if "spent" in run]
    return f"{np.mean(spent):.2f}" if spent else "-"


def _losing(found: Sequence[Mapping[str, Any]], alone: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of clients significantly worse off than alone; for `local` against its next seed, the chance
    level.
    """
    if not alone or any("diverged" in run for run in (*found, *alone)):
        return None
    pairs = zip(found, (*alone[1:], alone[0]) if found == alone else alone, strict=True)
    return float(np.mean([losers(correct_of(a), correct_of(b)) for a, b in pairs]))
