"""The study's tables and its verdicts, made of the cells that are there: a row that lacks one is left out."""

from __future__ import annotations

import numpy as np

from sparsona_papers._paper import Kept
from sparsona_papers.fedthin.analysis import bootstrap
from sparsona_papers.pool.analysis import best, gap, losing, models_sent, read, runs, verdicts
from sparsona_papers.pool.plan import ALONE, OURS, PoolPlan, chosen, finals, ready, trials
from sparsona_papers.pool.tasks import PoolTask

WORDS = {True: "supported", False: "**not supported**", None: "open: runs are missing"}


def report(kept: Kept, plan: PoolPlan) -> str:
    """The whole study as markdown."""
    cells = ready(kept, plan)
    done, hours = sum(cell.name in kept for cell in cells), sum(run.get("seconds", 0.0) for run in kept.values()) / 3600
    lines = [f"`sparsona reproduce pool`: {done} of {len(cells)} known runs are finished, {hours:.2f} hours.", ""]
    lines += ["| claim | verdict | evidence |", "|---|---|---|"]
    lines += [f"| {one.claim} | {WORDS[one.supported]} | {one.evidence} |" for one in verdicts(kept, plan)]
    for task in plan.tasks:
        lines += ["", *_task(kept, plan, task)]
    return "\n".join(lines) + "\n"


def _task(kept: Kept, plan: PoolPlan, task: PoolTask) -> list[str]:
    alone = best(kept, plan, task, ALONE)
    unit = "squared error" if task.regression else "log loss"
    lines = [
        f"### {task.name}",
        "",
        f"| row | {unit} | {OURS} less this | {'explained' if task.regression else 'accuracy'} | others | models sent "
        "| losers | chosen |",
        "|---" * 8 + "|",
    ]
    for row in plan.rows:
        found = runs(kept, plan, task, row)
        if not found:
            ended = [kept[cell.name] for cell in finals(kept, task, row, plan) if cell.name in kept]
            if lost := sum("diverged" in run for run in ended):
                lines.append(f"| {row} | left out: {lost} of {len(ended)} seeds diverged | - | - | - | - | - | - |")
            continue
        less = gap(kept, plan, task, row)
        effect = None if less is None or row == OURS else bootstrap({task.name: less}, repeats=2000)
        told = "-" if effect is None else f"{effect.value:+.4f} ({effect.low:+.4f} to {effect.high:+.4f})"
        share = None if alone is None else losing(kept, plan, task, row, alone)
        beside = {key: np.mean([run["others"][key] for run in found]) for key in found[0]["others"]}
        others = ", ".join(f"{key} {value:.3f}" for key, value in beside.items() if key != "accuracy")
        drawn = trials(row, plan)[chosen(kept, task, row, plan) or 0]
        by_seed = read(found, "loss").mean(axis=1)
        lines.append(
            f"| {row}{' (best alone)' if row == alone else ''} | {by_seed.mean():.4f} ± {by_seed.std(ddof=1):.4f} "
            f"| {told} | {100 * read(found, 'score').mean():.2f} | {others or '-'} | {models_sent(found):.2f} "
            f"| {'-' if share is None else f'{share:.1%}'} | {', '.join(f'{k}={v}' for k, v in drawn.items()) or '-'} |"
        )
    return lines
