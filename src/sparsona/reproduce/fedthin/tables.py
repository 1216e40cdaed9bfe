"""The study's tables and its verdicts, made of the cells that are there: a row that lacks one is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sparsona.report.significance import holm, losers
from sparsona.reproduce import Kept
from sparsona.reproduce.fedthin.analysis import (
    MODELS,
    Curve,
    Effect,
    Scores,
    area,
    bootstrap,
    bytes_to,
    not_inferior,
)
from sparsona.reproduce.fedthin.cells import correct_of, curve_of
from sparsona.reproduce.fedthin.plan import (
    ALONE,
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
from sparsona.reproduce.fedthin.tasks import StudyTask

Reading = Callable[[Curve], Scores]
"""A number a client of a run."""


def report(kept: Kept, plan: StudyPlan) -> str:
    """The whole study as markdown."""
    cells = [*tuning(plan), *finals(kept, plan), *longest(kept, plan)]
    done = sum(cell.name in kept for cell in cells)
    hours = sum(run["cpu_seconds"] for run in kept.values()) / 3600
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
    return [kept[name] for name in names] if trial is not None and all(name in kept for name in names) else []


def scores(found: Sequence[Mapping[str, Any]], read: Reading) -> Scores:
    """What is read of runs, seeds x clients. A run that diverged has the score of guessing."""
    curves = [None if "diverged" in run else curve_of(run) for run in found]
    some = next((curve for curve in curves if curve is not None), None)
    if some is None:
        return np.zeros((len(found), 1))
    guess = np.full(some.scores.shape[1], some.start)
    return np.array([guess if curve is None else read(curve) for curve in curves])


def at_end(curve: Curve) -> Scores:
    """The scores after the last round."""
    return np.asarray(curve.scores[-1])


def at_round(rounds: int) -> Reading:
    """The score after so many rounds, where every round was measured."""
    return lambda curve: np.asarray(curve.scores[min(rounds, len(curve.scores)) - 1])


def differences(kept: Kept, plan: StudyPlan, share: float, rival: str, by: Choice, read: Reading) -> dict[str, Scores]:
    """FedThin less a rival, by task. `local` sends nothing: its last score counts whatever the bytes."""
    out: dict[str, Scores] = {}
    for task in plan.tasks:
        mine, theirs = (runs(kept, plan, task, share, row, by, plan.rounds) for row in (OURS, rival))
        if mine and theirs:
            out[task.name] = scores(mine, read) - scores(theirs, at_end if rival == ALONE else read)
    return out


def _verdicts(kept: Kept, plan: StudyPlan, share: float) -> list[str]:
    rivals = [rival for rival in RIVALS if len(differences(kept, plan, share, rival, "area", area)) == len(plan.tasks)]
    if not rivals:
        return ["The runs of no rival are complete.", ""]
    by_area = [bootstrap(differences(kept, plan, share, rival, "area", area)) for rival in rivals]
    at_last = [bootstrap(differences(kept, plan, share, rival, "accuracy", at_end)) for rival in rivals]
    corrected = holm([effect.p for effect in by_area])
    lines = [
        f"Points of accuracy, FedThin less the rival, with 95 % intervals; area over log bytes from {MODELS[0]:g} to "
        f"{MODELS[1]:g} float32 models a client; accuracy after {plan.rounds} rounds.", "",
        "| rival | area | Holm p | accuracy | not inferior by 0.5 points | bytes to `local`, rival : FedThin |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for rival, first, p, last in zip(rivals, by_area, corrected, at_last, strict=True):
        lines.append(f"| {rival} | {first} | {p:.4f} | {last} | {_yes(last)} | {_ratio(kept, plan, share, rival)} |")
    return [*lines, ""]


def _yes(effect: Effect) -> str:
    return "yes" if not_inferior(effect.low) else "no"


def _ratio(kept: Kept, plan: StudyPlan, share: float, rival: str) -> str:
    """How many times the bytes of FedThin a rival needs to be as good as `local` is in the end: the geometric mean over
    tasks where both get there, and where each does."""
    found = {row: [_bytes_to_local(kept, plan, task, share, row) for task in plan.tasks] for row in (OURS, rival)}
    pairs = [(a, b) for a, b in zip(found[OURS], found[rival], strict=True) if math.isfinite(a) and 0 < b < math.inf]
    reached = ", ".join(f"{sum(map(math.isfinite, found[row]))} of {len(plan.tasks)}" for row in (rival, OURS))
    if not pairs:
        return f"- ({reached} reach it)"
    return f"{math.exp(np.mean([math.log(b / a) for a, b in pairs])):.1f} ({reached} reach it)"


def _bytes_to_local(kept: Kept, plan: StudyPlan, task: StudyTask, share: float, row: str) -> float:
    """The mean over seeds of the models' worth of bytes to the final accuracy of `local`; infinite if one never is."""
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
        lines.append(
            f"| {row} | {_mean(scores(cells['area'], at_end if row == ALONE else area))} "
            f"| {_mean(scores(best, at_round(plan.tuning)))} | {_mean(scores(best, at_end))} "
            f"| {_mean(scores(long, at_end)) if long else '-'} | {_spent(best)} "
            f"| {'-' if math.isinf(to_local) else f'{to_local:.2f}'} | {_losers(best, alone)} "
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


def _losers(found: Sequence[Mapping[str, Any]], alone: Sequence[Mapping[str, Any]]) -> str:
    """The share of clients significantly worse off than alone; of `local` against its next seed: the chance level."""
    if not alone or any("diverged" in run for run in (*found, *alone)):
        return "-"
    pairs = zip(found, (*alone[1:], alone[0]) if found == alone else alone, strict=True)
    return f"{np.mean([losers(correct_of(a), correct_of(b)) for a, b in pairs]):.1%}"
