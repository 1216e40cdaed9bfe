"""Specificity."""

from __future__ import annotations

import numpy as np

from sparsona.metrics import METRICS, Answers, metric
from sparsona.metrics._classes import NO_NEGATIVE, present


@METRICS.add
@metric("classification", "multilabel", unit="%", by_class=True, undefined=NO_NEGATIVE)
def specificity(answers: Answers) -> float:
    """Share of negative cases that are not taken for positive; of several classes the mean over those that occur."""
    chosen = [answers.positive] if answers.is_binary else present(answers)
    rest = [answers.predictions[answers.targets != label] != label for label in chosen]
    return float(np.mean([right.mean() if len(right) else np.nan for right in rest])) if rest else float("nan")
