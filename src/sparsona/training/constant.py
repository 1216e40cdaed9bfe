"""The constant answer, made from the training rows alone: a floor for every score."""

from __future__ import annotations

import numpy as np

from sparsona.data.dataset import Array, Indices
from sparsona.metrics import Answers
from sparsona.training.objective import Objective


def constant_answers(objective: Objective, targets: Array, train: Indices, test: Indices, classes: int) -> Answers:
    """Return the answers of a model without inputs: the shares of classes or labels, or the mean.

    The most frequent class is the prediction."""
    assert objective.task is not None
    known, truth = targets[train], targets[test]
    if objective.task == "classification":
        counts = np.bincount(known, minlength=classes)
        shares = np.tile(counts / max(counts.sum(), 1), (len(test), 1))
        return Answers(objective.task, np.full(len(test), counts.argmax()), shares, truth, objective.positive)
    wide = known.reshape(len(known), -1).astype(np.float64)
    seen = ~np.isnan(wide)
    means = np.where(seen, wide, 0.0).sum(0) / np.maximum(seen.sum(0), 1)
    said = np.tile(means, (len(test), 1))
    truth = truth.reshape(said.shape).astype(np.float64)
    if objective.task == "multilabel":
        return Answers(objective.task, (said > 0.5).astype(np.float64), said, truth)
    return Answers(objective.task, said, said[:, :0], truth)
