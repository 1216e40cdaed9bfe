"""Metrics of numbers."""

from __future__ import annotations

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, metric


@METRICS.named("mae")
@metric("regression", unit="target", higher_is_better=False, additive=True)
def mae(answers: Answers) -> Array:
    """Mean absolute error."""
    errors: Array = np.abs(answers.predictions - answers.targets).mean(1)
    return errors


@METRICS.named("median-absolute-error")
@metric("regression", unit="target", higher_is_better=False)
def median_absolute_error(answers: Answers) -> float:
    """Median of the absolute errors, which single large errors do not move."""
    return float(np.median(np.abs(answers.predictions - answers.targets), axis=0).mean())


@METRICS.named("rmse")
@metric("regression", unit="target", higher_is_better=False)
def rmse(answers: Answers) -> float:
    """Root of the mean squared error; of several targets the mean of their roots."""
    return float(np.sqrt(((answers.predictions - answers.targets) ** 2).mean(0)).mean())


@METRICS.named("r2")
@metric("regression", undefined="its rows all have the same target")
def r2(answers: Answers) -> float:
    """Share of the target's variance that the model explains; below 0 it is worse than the mean of these rows."""
    missed = ((answers.targets - answers.predictions) ** 2).sum(0)
    spread = ((answers.targets - answers.targets.mean(0)) ** 2).sum(0)
    return float((1 - missed / np.where(spread > 0, spread, np.nan)).mean())
