"""What several metrics of classes share: one class against the rest, and counts of right and wrong answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparsona.data.dataset import Array
from sparsona.metrics._metric import Answers

ONE_CLASS = "its rows are all of one class"
NO_POSITIVE = "its rows have no case of the positive class"
NO_NEGATIVE = "its rows are all of the positive class"


def present(answers: Answers) -> list[int]:
    """The classes that some row has. A target without a class of the model (-1) counts against all of them."""
    return [int(label) for label in np.unique(answers.targets) if label >= 0]


def one_against_rest(answers: Answers, of: Callable[[Array, Array], float]) -> float:
    """Apply `of` to a class's probabilities and to whether a row is of that class; the mean over the classes.

    Of two classes only the positive one is asked about. NaN where all rows are of one class.
    """
    if len(np.unique(answers.targets)) < 2:
        return float("nan")
    chosen = [answers.positive] if answers.is_binary else present(answers)
    return float(np.mean([of(answers.probabilities[:, label], answers.targets == label) for label in chosen]))


def recalls(answers: Answers) -> list[float]:
    """The share of right answers among the rows of each class."""
    right = answers.predictions == answers.targets
    return [float(right[answers.targets == label].mean()) for label in np.unique(answers.targets)]


def recall(answers: Answers, label: int) -> float:
    """The share of rows of a class that are found; NaN where there are none."""
    found = answers.predictions[answers.targets == label] == label
    return float(found.mean()) if len(found) else float("nan")
