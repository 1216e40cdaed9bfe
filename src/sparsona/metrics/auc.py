"""Area under the ROC curve."""

from __future__ import annotations

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, metric
from sparsona.metrics._classes import ONE_CLASS, one_against_rest


@METRICS.add
@metric("classification", "multilabel", by_class=True, undefined=ONE_CLASS)
def auc(answers: Answers) -> float:
    """Area under the ROC curve; of several classes each against the rest, the mean over the classes that occur."""
    return one_against_rest(answers, _area)


def _area(scores: Array, positive: Array) -> float:
    """The share of pairs of a positive and a negative row in which the positive one scores more; a tie is half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    yes = int(positive.sum())
    return float((ranks[positive].sum() - yes * (yes + 1) / 2) / (yes * (len(scores) - yes)))
