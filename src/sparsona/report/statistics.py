"""Intervals over seeds, and tests between methods."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and the half width of its confidence interval; None with one value, which shows no spread."""

    mean: float
    half: float | None
    count: int

    @property
    def low(self) -> float:
        """The lower bound."""
        return self.mean - (self.half or 0.0)

    @property
    def high(self) -> float:
        """The upper bound."""
        return self.mean + (self.half or 0.0)


def half_width(values: Sequence[float]) -> float:
    """Return half the width of Student's confidence interval of the mean of two or more values.

    >>> round(half_width([1.0, 2.0, 3.0]), 4)
    2.4841
    """
    from scipy.special import stdtrit

    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * error


def interval(values: Sequence[float], shared: float = 0.0) -> Interval | None:
    """Return Student's interval of the mean; None without values. Values that are not finite do not count.

    `shared` is the ratio of scored to training rows if every value comes from a new split of the same rows. Such values
    are correlated, and the interval is widened accordingly (Nadeau and Bengio, "Inference for the Generalization
    Error", Machine Learning 52, 2003).

    >>> interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, half=2.48414, count=3)
    >>> interval([1.0, 2.0, 3.0], shared=0.25)
    Interval(mean=2.0, half=3.28621, count=3)
    """
    known = np.array([value for value in values if math.isfinite(value)], np.float64)
    if not len(known):
        return None
    if len(known) == 1:
        return Interval(float(known[0]), None, 1)
    half = half_width(known.tolist()) * math.sqrt(1 + shared * len(known))
    return Interval(float(known.mean()), float(f"{half:.6g}"), len(known))


def paired_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test that paired differences are symmetric around 0.

    Differences that are 0 or not finite do not count; without others it is 1.

    >>> round(paired_p([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 5), paired_p([0.0, 0.0])
    (0.03125, 1.0)
    """
    from scipy.stats import wilcoxon

    known = [value for value in differences if math.isfinite(value) and value != 0]
    return float(wilcoxon(known).pvalue) if known else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests, so that the chance of any wrong rejection is held.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    out, largest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(np.argsort(p_values, kind="stable").tolist()):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        out[at] = largest
    return out
