"""Accuracy."""

from __future__ import annotations

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, metric


@METRICS.add
@metric("classification", "multilabel", unit="%", additive=True)
def accuracy(answers: Answers) -> Array:
    """Share of right answers."""
    right: Array = answers.predictions == answers.targets
    return right
