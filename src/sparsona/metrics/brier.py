"""Brier score."""

from __future__ import annotations

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, metric


@METRICS.add
@metric("classification", "multilabel", higher_is_better=False, additive=True)
def brier(answers: Answers) -> Array:
    """Squared distance of the probabilities from the truth; with two classes that of the positive one."""
    truth = answers.targets[:, None] == np.arange(answers.probabilities.shape[1])
    squares = (answers.probabilities - truth) ** 2
    losses: Array = squares[:, answers.positive] if answers.is_binary else squares.sum(1)
    return losses
