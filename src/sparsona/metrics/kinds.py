"""Metrics of classes and labels, and of numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics import METRICS, Answers, metric

ONE_CLASS = "its rows are all of one class"
BINS = 10
"""Bins of the calibration error, of equal widths."""
LEAST = float(np.finfo(np.float64).eps)
"""Lower bound of probabilities, so that one row with probability 0 does not make the mean infinite."""


def _asked(answers: Answers) -> list[int]:
    """Return the positive class of two, or all occurring classes of several.

    A target without a class of the model (-1) counts against all of them.
    """
    return [answers.positive] if answers.is_binary else [int(c) for c in np.unique(answers.targets) if c >= 0]


def _one_against_rest(answers: Answers, of: Callable[[Array, Array], float]) -> float:
    """Apply `of` to a class's probabilities and to whether a row is of that class; the mean over the classes.

    NaN where all rows are of one class.
    """
    if len(np.unique(answers.targets)) < 2:
        return float("nan")
    return float(np.mean([of(answers.probabilities[:, c], answers.targets == c) for c in _asked(answers)]))


@METRICS.named("accuracy")
@metric("classification", "multilabel", unit="%", additive=True)
def accuracy(answers: Answers) -> Array:
    """Share of right answers."""
    right: Array = answers.predictions == answers.targets
    return right


@METRICS.named("balanced-accuracy")
@metric("classification", "multilabel", unit="%", by_class=True)
def balanced_accuracy(answers: Answers) -> float:
    """Share of right answers in each class, the mean over the classes."""
    right = answers.predictions == answers.targets
    return float(np.mean([float(right[answers.targets == label].mean()) for label in np.unique(answers.targets)]))


@METRICS.named("sensitivity")
@metric(
    "classification", "multilabel", unit="%", by_class=True, undefined="its rows have no case of the positive class"
)
def sensitivity(answers: Answers) -> float:
    """Share of positive cases that are found (recall); of several classes the mean over those that occur."""
    found = [answers.predictions[answers.targets == label] == label for label in _asked(answers)]
    return float(np.mean([right.mean() if len(right) else np.nan for right in found])) if found else float("nan")


@METRICS.named("specificity")
@metric("classification", "multilabel", unit="%", by_class=True, undefined="its rows are all of the positive class")
def specificity(answers: Answers) -> float:
    """Share of negative cases that are not taken for positive; of several classes the mean over those that occur."""
    rest = [answers.predictions[answers.targets != label] != label for label in _asked(answers)]
    return float(np.mean([right.mean() if len(right) else np.nan for right in rest])) if rest else float("nan")


@METRICS.named("f1")
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


@METRICS.named("auc")
@metric("classification", "multilabel", by_class=True, undefined=ONE_CLASS)
def auc(answers: Answers) -> float:
    """Area under the ROC curve; of several classes each against the rest, the mean over the classes that occur."""

    def area(scores: Array, positive: Array) -> float:
        # The share of pairs of a positive and a negative row in which the positive one scores more; a tie is half.
        _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
        yes = int(positive.sum())
        return float((ranks[positive].sum() - yes * (yes + 1) / 2) / (yes * (len(scores) - yes)))

    return _one_against_rest(answers, area)


@METRICS.named("average-precision")
@metric("classification", "multilabel", by_class=True, undefined=ONE_CLASS)
def average_precision(answers: Answers) -> float:
    """Area under the precision-recall curve, by steps; of several classes the mean over those that occur."""

    def area(scores: Array, positive: Array) -> float:
        order = np.argsort(-scores, kind="stable")
        # Rows of equal scores are one step: no threshold tells them apart.
        ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
        found = np.cumsum(positive[order])[ends]
        gained = np.diff(found, prepend=0) / found[-1]
        return float((gained * found / (ends + 1)).sum())

    return _one_against_rest(answers, area)


@METRICS.named("log-loss")
@metric("classification", "multilabel", higher_is_better=False, additive=True)
def log_loss(answers: Answers) -> Array:
    """Minus the logarithm of the probability that the true class was given (cross-entropy)."""
    known = answers.targets >= 0
    given = answers.probabilities[np.arange(len(answers)), np.where(known, answers.targets, 0)]
    losses: Array = -np.log(np.clip(np.where(known, given, 0.0), LEAST, 1 - LEAST))
    return losses


@METRICS.named("brier")
@metric("classification", "multilabel", higher_is_better=False, additive=True)
def brier(answers: Answers) -> Array:
    """Squared distance of the probabilities from the truth; with two classes that of the positive one."""
    truth = answers.targets[:, None] == np.arange(answers.probabilities.shape[1])
    squares = (answers.probabilities - truth) ** 2
    losses: Array = squares[:, answers.positive] if answers.is_binary else squares.sum(1)
    return losses


@METRICS.named("calibration-error")
@metric("classification", "multilabel", unit="%", higher_is_better=False)
def calibration_error(answers: Answers) -> float:
    """Distance of the probabilities from the observed shares, over ten bins (expected calibration error)."""
    bins, promised, true = bins_of(answers)
    gaps = np.bincount(bins, promised - true, BINS)
    return float(np.abs(gaps).sum() / len(answers))


def bins_of(answers: Answers) -> tuple[Array, Array, Array]:
    """Return per row the number of its bin, the predicted probability, and whether the prediction was right.

    With two classes it is the probability of the positive one, with more that of the likeliest.
    """
    if answers.is_binary:
        promised, true = answers.probabilities[:, answers.positive], answers.targets == answers.positive
    else:
        likeliest = answers.probabilities.argmax(1)
        promised, true = answers.probabilities[np.arange(len(answers)), likeliest], likeliest == answers.targets
    return np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], promised), promised, true


@METRICS.named("mae")
@metric("regression", unit="target", higher_is_better=False, additive=True)
def mae(answers: Answers) -> Array:
    """Mean absolute error."""
    errors: Array = np.abs(answers.predictions - answers.targets).mean(1)
    return errors


@METRICS.named("median-absolute-error")
@metric("regression", unit="target", higher_is_better=False)
def median_absolute_error(answers: Answers) -> float:
    """Median of the absolute errors, which single large errors do not move."""
    return float(np.median(np.abs(answers.predictions - answers.targets), axis=0).mean())


@METRICS.named("rmse")
@metric("regression", unit="target", higher_is_better=False)
def rmse(answers: Answers) -> float:
    """Root of the mean squared error; of several targets the mean of their roots."""
    return float(np.sqrt(((answers.predictions - answers.targets) ** 2).mean(0)).mean())


@METRICS.named("r2")
@metric("regression", undefined="its rows all have the same target")
def r2(answers: Answers) -> float:
    """Share of the target's variance that the model explains; below 0 it is worse than the mean of these rows."""
    missed = ((answers.targets - answers.predictions) ** 2).sum(0)
    spread = ((answers.targets - answers.targets.mean(0)) ** 2).sum(0)
    return float((1 - missed / np.where(spread > 0, spread, np.nan)).mean())
