"""How sure a score is: a bootstrap over the rows, and a paired test of two models on the same rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics._metric import Answers, Metric

DRAWS = 400
"""Resamples of a bootstrap."""
DEFINED = 0.99
"""The least share of resamples that have a score."""
SWAPS = 399
"""The most random swaps of a paired test: the least p-value is 1 / 400."""
ENOUGH = 10
"""Number of swaps as good as the truth after which a paired test stops (Besag and Clifford, 1991)."""
NUMBERS = 2**22
"""Random numbers that are held at once."""


def bootstrap(metric: Metric, answers: Answers, rng: np.random.Generator) -> tuple[float, float]:
    """Return the 95 % interval of a score by resampling its rows.

    NaN if one resample of a hundred has no score: with fewer than five rows of a class, those that have one are too
    much alike, and their interval is far too narrow.
    """
    if len(answers) < 2:
        return math.nan, math.nan
    each = _by_row(metric, answers)
    if each is not None:
        size = max(1, NUMBERS // len(each))
        counts = [min(size, DRAWS - start) for start in range(0, DRAWS, size)]
        found = np.concatenate([each[rng.integers(0, len(each), (count, len(each)))].mean(1) for count in counts])
    else:
        drawn = (rng.integers(0, len(answers), len(answers)) for _ in range(DRAWS))
        found = np.array([metric.value(answers.take(rows)) for rows in drawn])
    defined = found[np.isfinite(found)]
    if len(defined) < DEFINED * len(found):
        return math.nan, math.nan
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)


def paired_test(metric: Metric, mine: Answers, theirs: Answers, rng: np.random.Generator) -> tuple[float, float]:
    """By how much `mine` are better than `theirs`, and the p-value of no difference; NaN where there is no score.

    The answers to random rows are swapped between the models. The p-value is the share of swaps with a difference at
    least as large as the true one. It is exact for any metric and any number of rows; two rows give at least 0.5.
    """
    sign = 1.0 if metric.higher_is_better else -1.0
    gain = sign * (metric.value(mine) - metric.value(theirs))
    if not math.isfinite(gain):
        return math.nan, math.nan
    reached = abs(gain) * (1 - 1e-9) - 1e-15
    ours, others = _by_row(metric, mine), _by_row(metric, theirs)
    if ours is not None and others is not None:
        apart = ours.astype(np.float64) - others
        apart = apart[apart != 0] / len(apart)
        flips = rng.choice(np.array([-1.0, 1.0]), (SWAPS, min(len(apart), NUMBERS // SWAPS)))
        if flips.shape[1] < len(apart):
            # With this many rows the mean is normally distributed.
            spread = math.sqrt(float((apart**2).sum()))
            return gain, math.erfc(abs(gain) / spread / math.sqrt(2))
        as_large = int((np.abs(flips @ apart) >= reached).sum())
        return gain, (as_large + 1) / (SWAPS + 1)
    as_large = 0
    for number in range(1, SWAPS + 1):
        swapped = rng.random(len(mine)) < 0.5
        value = metric.value(_mixed(swapped, theirs, mine)) - metric.value(_mixed(swapped, mine, theirs))
        as_large += abs(value) >= reached
        if as_large == ENOUGH:
            return gain, ENOUGH / number
    return gain, (as_large + 1) / (SWAPS + 1)


def _by_row(metric: Metric, answers: Answers) -> Array | None:
    """The values of an additive metric row by row; None for another one."""
    if not metric.additive or answers.task == "multilabel" or metric.label is not None:
        return None
    return np.asarray(metric.of(answers))


def _mixed(chosen: Array, some: Answers, others: Answers) -> Answers:
    """The answers of `some` for the chosen rows, those of `others` for the rest."""

    def of(one: Array, other: Array) -> Array:
        mixed: Array = np.where(chosen.reshape(-1, *(1,) * (one.ndim - 1)), one, other)
        return mixed

    return replace(
        some,
        predictions=of(some.predictions, others.predictions),
        probabilities=of(some.probabilities, others.probabilities),
    )
