"""Log loss."""

from __future__ import annotations

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, metric

LEAST = float(np.finfo(np.float64).eps)
"""The least probability that counts, so that one row that was thought impossible does not make all infinite."""


@METRICS.add
@metric("classification", "multilabel", higher_is_better=False, additive=True)
def log_loss(answers: Answers) -> Array:
    """Minus the logarithm of the probability that the true class was given (cross-entropy)."""
    known = answers.targets >= 0
    given = answers.probabilities[np.arange(len(answers)), np.where(known, answers.targets, 0)]
    losses: Array = -np.log(np.clip(np.where(known, given, 0.0), LEAST, 1 - LEAST))
    return losses
