"""Mean absolute error."""

from __future__ import annotations

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, metric


@METRICS.add
@metric("regression", unit="target", higher_is_better=False, additive=True)
def mae(answers: Answers) -> Array:
    """Mean absolute error."""
    errors: Array = np.abs(answers.predictions - answers.targets).mean(1)
    return errors
