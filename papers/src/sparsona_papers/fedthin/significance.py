"""Tests and corrections for many of them: exact McNemar, Benjamini-Hochberg, Holm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, false_discovery_control

from sparsona.report.statistics import holm

__all__ = ["benjamini_hochberg", "holm", "losers", "mcnemar"]

Bools = npt.NDArray[np.bool_]


def mcnemar(wins: int, losses: int) -> float:
    """The one-sided exact p-value of `losses` among the samples on which two models disagree.

    Under the hypothesis that both are equally good a disagreement is a toss of a coin.

    >>> mcnemar(0, 5), mcnemar(1, 1), mcnemar(0, 0)
    (0.03125, 0.75, 1.0)
    """
    tosses = wins + losses
    return float(binomtest(losses, tosses, alternative="greater").pvalue) if tosses else 1.0


def benjamini_hochberg(p_values: Sequence[float], rate: float = 0.05) -> list[bool]:
    """Which hypotheses are rejected so that the expected share of wrong rejections is at most `rate`.

    Benjamini and Hochberg, "Controlling the False Discovery Rate", JRSS B 1995.

    >>> benjamini_hochberg([0.01, 0.04, 0.03, 0.5])
    [True, False, False, False]
    >>> benjamini_hochberg([0.01, 0.02, 0.03, 0.5])
    [True, True, True, False]
    """
    return [bool(corrected <= rate) for corrected in false_discovery_control(p_values)]


def losers(mine: Sequence[Bools], theirs: Sequence[Bools], rate: float = 0.05) -> float:
    """The share of clients that are significantly worse off with `mine`: McNemar client by client, then the rate of
    false discoveries held. Each client has an array of which test samples a model gets right.

    >>> right, wrong = np.ones(9, bool), np.zeros(9, bool)
    >>> losers([wrong, right], [right, right])
    0.5
    """
    counts = [(int((a & ~b).sum()), int((~a & b).sum())) for a, b in zip(mine, theirs, strict=True)]
    found = benjamini_hochberg([mcnemar(wins, losses) for wins, losses in counts], rate)
    return sum(found) / len(found)
