"""Root mean squared error."""

from __future__ import annotations

import numpy as np

from sparsona.metrics import METRICS, Answers, metric


@METRICS.add
@metric("regression", unit="target", higher_is_better=False)
def rmse(answers: Answers) -> float:
    """Root of the mean squared error; of several targets the mean of their roots."""
    return float(np.sqrt(((answers.predictions - answers.targets) ** 2).mean(0)).mean())
