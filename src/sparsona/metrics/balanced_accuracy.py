"""Balanced accuracy."""

from __future__ import annotations

import numpy as np

from sparsona.metrics import METRICS, Answers, metric
from sparsona.metrics._classes import recalls


@METRICS.add
@metric("classification", "multilabel", unit="%", by_class=True)
def balanced_accuracy(answers: Answers) -> float:
    """Share of right answers in each class, the mean over the classes."""
    return float(np.mean(recalls(answers)))
