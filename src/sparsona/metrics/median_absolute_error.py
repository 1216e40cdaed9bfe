"""Median absolute error."""

from __future__ import annotations

import numpy as np

from sparsona.metrics import METRICS, Answers, metric


@METRICS.add
@metric("regression", unit="target", higher_is_better=False)
def median_absolute_error(answers: Answers) -> float:
    """Median of the absolute errors, which single large errors do not move."""
    return float(np.median(np.abs(answers.predictions - answers.targets), axis=0).mean())
