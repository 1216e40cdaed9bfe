"""F1."""

from __future__ import annotations

import numpy as np

from sparsona.metrics import METRICS, Answers, metric


@METRICS.add
@metric(
    "classification",
    "multilabel",
    unit="%",
    by_class=True,
    undefined="its rows neither have nor get the positive class",
)
def f1(answers: Answers) -> float:
    """Harmonic mean of precision and recall; of several classes the mean over those that occur or are predicted."""
    said, true = answers.predictions, answers.targets
    chosen = [answers.positive] if answers.is_binary else np.union1d(said, true).tolist()
    both = [
        (2 * int(((said == c) & (true == c)).sum()), int((said == c).sum()) + int((true == c).sum())) for c in chosen
    ]
    return float(np.mean([twice / total if total else np.nan for twice, total in both]))
