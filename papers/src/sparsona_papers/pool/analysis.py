"""The protocol's analyses: losses by owner, verdicts on the five claims, and the share of owners that lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsona_papers._paper import Kept
from sparsona_papers.fedthin.analysis import Effect, bootstrap
from sparsona_papers.fedthin.cells import unpack
from sparsona_papers.fedthin.significance import benjamini_hochberg
from sparsona_papers.pool.plan import ALONE, DENSE, FORBIDDEN, OURS, UNSHARED, PoolPlan, finals
from sparsona_papers.pool.tasks import PoolTask

Scores = npt.NDArray[np.float64]
"""Numbers of one task: seeds x owners."""
ENOUGH, MARGIN, POINTS, THINNER, MOST_LOSERS = 0.75, 0.01, 0.005, 10.0, 0.01
"""Tasks that make most of them; the margins of claims b and c; the factor of b; the share of d."""


def runs(kept: Kept, plan: PoolPlan, task: PoolTask, row: str) -> list[Mapping[str, Any]]:
    """The chosen trial's runs by seed; nothing unless all seeds are there and none diverged."""
    cells = finals(kept, task, row, plan)
    found: list[Mapping[str, Any]] = [kept.get(cell.name, {"diverged": ""}) for cell in cells]
    return [] if any("diverged" in run for run in found) else found


def whole(kept: Kept, plan: PoolPlan, rows: Sequence[str]) -> bool:
    """Return whether the chosen runs of some rows have ended on all tasks. A diverged run has ended, too."""
    cells = [finals(kept, task, row, plan) for task in plan.tasks for row in rows]
    return all(own and all(cell.name in kept for cell in own) for own in cells)


def read(found: Sequence[Mapping[str, Any]], key: str) -> Scores:
    """Return one number per owner, seeds x owners."""
    return np.array([run[key] for run in found], np.float64)


def models_sent(found: Sequence[Mapping[str, Any]]) -> float:
    """The bytes up and down of an average client, in float32 models."""
    return float(np.mean([run["models"]["up"] + run["models"]["down"] for run in found]))


def best(kept: Kept, plan: PoolPlan, task: PoolTask, rows: Sequence[str]) -> str | None:
    """Return the row with the lowest mean loss on test rows, which favours the rivals; None if there is none.

    A row of which a seed diverged is left out, as the protocol says.
    """
    found = {row: own for row in rows if (own := runs(kept, plan, task, row))}
    return min(found, key=lambda row: float(read(found[row], "loss").mean()), default=None)


def one_sided(worse: Scores, flips: int = 1999, seed: int = 0) -> float:
    """Return the one-sided p-value of the mean of paired differences, by random changes of sign.

    >>> one_sided(np.full(20, 0.1)) < 0.01, one_sided(np.array([0.1, -0.1])) > 0.3
    (True, True)
    """
    return float((1 + (_signs(flips, len(worse), seed) @ worse >= worse.sum() - 1e-9).sum()) / (1 + flips))


@lru_cache(maxsize=256)
def _signs(flips: int, count: int, seed: int) -> Scores:
    return np.random.default_rng(seed).choice((-1.0, 1.0), (flips, count))


def losers(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """The share of owners whose rows have significantly larger losses with `mine`: Benjamini-Hochberg at 0.05."""
    gaps = np.subtract(*(unpack(run["rows"], np.uint8, 1).reshape(-1).astype(np.float64) for run in (mine, theirs)))
    found = benjamini_hochberg([one_sided(own) for own in np.split(gaps, np.cumsum(mine["tests"])[:-1])])
    return sum(found) / len(found)


@dataclass(frozen=True)
class Verdict:
    """One claim, whether it is supported (None: not all runs are there), and the numbers."""

    claim: str
    supported: bool | None
    evidence: str


def verdicts(kept: Kept, plan: PoolPlan) -> list[Verdict]:
    """The five claims."""
    alone = {task: best(kept, plan, task, ALONE) for task in plan.tasks}
    forbidden = {task: best(kept, plan, task, FORBIDDEN) for task in plan.tasks}
    return [
        _below("a. The pool's loss is below the best expert alone's on three of four tasks, above it on none outside "
               "the noise", kept, plan, alone),
        _dense(kept, plan),
        _points(kept, plan, forbidden),
        _harm(kept, plan, alone),
        _below("e. The pool's loss is below that of the pool without a federation on three of four tasks, above it on "
               "none outside the noise", kept, plan, dict.fromkeys(plan.tasks, UNSHARED)),
    ]  # fmt: skip


def gap(kept: Kept, plan: PoolPlan, task: PoolTask, rival: str | None, key: str = "loss") -> Scores | None:
    """Return our numbers less a rival's, seeds x owners; None if runs are missing."""
    mine, theirs = runs(kept, plan, task, OURS), runs(kept, plan, task, rival) if rival else []
    return read(mine, key) - read(theirs, key) if mine and theirs else None


def _below(claim: str, kept: Kept, plan: PoolPlan, rivals: Mapping[PoolTask, str | None]) -> Verdict:
    found = {task.name: gap(kept, plan, task, rival) for task, rival in rivals.items()}
    effects = {name: bootstrap({name: own}) for name, own in found.items() if own is not None}
    ahead = [name for name, effect in effects.items() if effect.value < 0]
    harmed = [name for name, effect in effects.items() if effect.low > 0]
    told = f"below on {len(ahead)} of {len(effects)} tasks; above outside the noise on {', '.join(harmed) or 'none'}"
    asked = (OURS, UNSHARED) if UNSHARED in rivals.values() else (OURS, *ALONE)
    decided = len(ahead) >= ENOUGH * len(plan.tasks) and not harmed
    return Verdict(claim, decided if whole(kept, plan, asked) else None, told)


def _dense(kept: Kept, plan: PoolPlan) -> Verdict:
    claim = (
        "b. The pool is not inferior to tuned dense FedAvg with trees (margin 1 % of its loss) at a tenth of its bytes"
    )
    relative, ratios = {}, []
    for task in plan.tasks:
        own, theirs = gap(kept, plan, task, DENSE), runs(kept, plan, task, DENSE)
        if own is not None:
            relative[task.name] = own / read(theirs, "loss").mean()
            ratios.append(models_sent(theirs) / models_sent(runs(kept, plan, task, OURS)))
    if not relative:
        return Verdict(claim, None, "no task is complete")
    effect, ratio = bootstrap(relative), float(np.exp(np.mean(np.log(ratios))))
    told = f"{_percent(effect)} of its loss over {len(relative)} tasks; it sends {ratio:.1f} times the bytes"
    decided = effect.high < MARGIN and ratio >= THINNER
    return Verdict(claim, decided if whole(kept, plan, (OURS, DENSE)) else None, told)


def _points(kept: Kept, plan: PoolPlan, rivals: Mapping[PoolTask, str | None]) -> Verdict:
    claim = "c. The pool is not inferior to training on everybody's rows (margin half a point of accuracy or variance)"
    gaps = {task.name: gap(kept, plan, task, rival, "score") for task, rival in rivals.items()}
    known = {name: own for name, own in gaps.items() if own is not None}
    if not known:
        return Verdict(claim, None, "no task is complete")
    effect, level = bootstrap(known), sum(own.mean() >= -POINTS for own in known.values())
    told = f"{_percent(effect)} points over {len(known)} tasks; within half a point or above on {level}"
    return Verdict(claim, effect.low > -POINTS if whole(kept, plan, (OURS, *FORBIDDEN)) else None, told)


def _harm(kept: Kept, plan: PoolPlan, rivals: Mapping[PoolTask, str | None]) -> Verdict:
    claim = "d. At most 1 % of the owners are significantly worse off than with the best expert alone"
    shares = {
        task.name: share for task, rival in rivals.items()
        if rival is not None and (share := losing(kept, plan, task, OURS, rival)) is not None
    }  # fmt: skip
    if not shares:
        return Verdict(claim, None, "no task is complete")
    mean = float(np.mean(list(shares.values())))
    told = f"{mean:.1%} of the owners, mean of {len(shares)} tasks; most on {max(shares, key=lambda k: shares[k])}"
    return Verdict(claim, mean <= MOST_LOSERS if whole(kept, plan, (OURS, *ALONE)) else None, told)


def losing(kept: Kept, plan: PoolPlan, task: PoolTask, row: str, rival: str) -> float | None:
    """The share of owners that are significantly worse off with a row than with a rival, the mean over the seeds."""
    mine, theirs = (runs(kept, plan, task, one) for one in (row, rival))
    if not mine or not theirs:
        return None
    return float(np.mean([losers(a, b) for a, b in zip(mine, theirs, strict=True)]))


def _percent(effect: Effect) -> str:
    return f"{100 * effect.value:+.2f} ({100 * effect.low:+.2f} to {100 * effect.high:+.2f}) %"
