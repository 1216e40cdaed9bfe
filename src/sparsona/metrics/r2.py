"""Coefficient of determination."""

from __future__ import annotations

import numpy as np

from sparsona.metrics import METRICS, Answers, metric


@METRICS.add
@metric("regression", undefined="its rows all have the same target")
def r2(answers: Answers) -> float:
    """Share of the target's variance that the model explains; below 0 it is worse than the mean of these rows."""
    missed = ((answers.targets - answers.predictions) ** 2).sum(0)
    spread = ((answers.targets - answers.targets.mean(0)) ** 2).sum(0)
    return float((1 - missed / np.where(spread > 0, spread, np.nan)).mean())
