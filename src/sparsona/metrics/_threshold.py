"""The probability from which on a model answers with the positive class, chosen on validation rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsona.errors import InputError
from sparsona.metrics._metric import Answers


@dataclass(frozen=True)
class ThresholdRule:
    """The rule for a threshold: the best sum of sensitivity and specificity, or the highest threshold that finds a
    share `sensitivity` of the positive cases.
    """

    sensitivity: float | None = None

    @classmethod
    def parse(cls, text: str) -> ThresholdRule | None:
        """The rule that a setting names; None of an empty one.

        >>> ThresholdRule.parse("youden"), ThresholdRule.parse("sensitivity=0.9"), ThresholdRule.parse("")
        (ThresholdRule(sensitivity=None), ThresholdRule(sensitivity=0.9), None)
        """
        if not text:
            return None
        name, _, share = text.partition("=")
        try:
            wanted = float(share) if share else None
        except ValueError:
            wanted = -1.0
        if name == "youden" and not share:
            return cls()
        if name == "sensitivity" and wanted is not None and 0 < wanted <= 1:
            return cls(wanted)
        raise InputError(f"threshold {text!r} is not known: give youden, or sensitivity=0.9")

    def choose(self, answers: Answers) -> float | None:
        """Return the threshold for the probability of the positive class.

        It lies halfway between two probabilities that occur, so that rounding moves no row across it. None if the rows
        are all of one class, or if no threshold is better than chance by Youden: a constant would always answer yes.
        """
        yes, true = answers.probabilities[:, answers.positive], answers.targets == answers.positive
        if true.all() or not true.any():
            return None
        levels = np.unique(yes)
        cuts = np.concatenate([levels[:1] / 2, (levels[1:] + levels[:-1]) / 2])
        found = np.searchsorted(np.sort(yes[true]), cuts)
        passed = np.searchsorted(np.sort(yes[~true]), cuts)
        sensitivity, specificity = 1 - found / true.sum(), passed / (~true).sum()
        if self.sensitivity is None:
            best = int(np.argmax(sensitivity + specificity))
            return float(cuts[best]) if sensitivity[best] + specificity[best] > 1 + 1e-12 else None
        return float(cuts[np.flatnonzero(sensitivity >= self.sensitivity - 1e-12)[-1]])
