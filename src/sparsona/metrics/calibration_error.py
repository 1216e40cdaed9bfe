"""Expected calibration error."""

from __future__ import annotations

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, metric

BINS = 10


def bins_of(answers: Answers) -> tuple[Array, Array, Array]:
    """The number of each row's bin, what was promised for the row, and whether it came true.

    With two classes it is the probability of the positive one, with more that of the likeliest. Bins have equal widths.
    """
    if answers.is_binary:
        promised, true = answers.probabilities[:, answers.positive], answers.targets == answers.positive
    else:
        likeliest = answers.probabilities.argmax(1)
        promised, true = answers.probabilities[np.arange(len(answers)), likeliest], likeliest == answers.targets
    return np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], promised), promised, true


@METRICS.add
@metric("classification", "multilabel", unit="%", higher_is_better=False)
def calibration_error(answers: Answers) -> float:
    """Distance of the probabilities from the observed shares, over ten bins (expected calibration error)."""
    bins, promised, true = bins_of(answers)
    gaps = np.bincount(bins, promised - true, BINS)
    return float(np.abs(gaps).sum() / len(answers))
