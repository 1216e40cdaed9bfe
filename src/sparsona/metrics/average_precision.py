"""Average precision."""

from __future__ import annotations

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, metric
from sparsona.metrics._classes import ONE_CLASS, one_against_rest


@METRICS.add
@metric("classification", "multilabel", by_class=True, undefined=ONE_CLASS)
def average_precision(answers: Answers) -> float:
    """Area under the precision-recall curve, by steps; of several classes the mean over those that occur."""
    return one_against_rest(answers, _area)


def _area(scores: Array, positive: Array) -> float:
    order = np.argsort(-scores, kind="stable")
    # Rows of equal scores are one step: no threshold tells them apart.
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    found = np.cumsum(positive[order])[ends]
    gained = np.diff(found, prepend=0) / found[-1]
    return float((gained * found / (ends + 1)).sum())
