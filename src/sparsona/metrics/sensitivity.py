"""Sensitivity."""

from __future__ import annotations

import numpy as np

from sparsona.metrics import METRICS, Answers, metric
from sparsona.metrics._classes import NO_POSITIVE, present, recall


@METRICS.add
@metric("classification", "multilabel", unit="%", by_class=True, undefined=NO_POSITIVE)
def sensitivity(answers: Answers) -> float:
    """Share of positive cases that are found (recall); of several classes the mean over those that occur."""
    chosen = [answers.positive] if answers.is_binary else present(answers)
    return float(np.mean([recall(answers, label) for label in chosen])) if chosen else float("nan")
