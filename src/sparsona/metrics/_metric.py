"""Metrics: functions from a model's answers to a number, and how that number is shown."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from sparsona.data.dataset import Array, Indices

TaskName: TypeAlias = Literal["classification", "regression", "multilabel"]
Unit: TypeAlias = Literal["%", "number", "target"]
"""How a score is shown: in per cent (differences in points), as it is, or in the unit of the target."""


@dataclass(frozen=True)
class Answers:
    """A model's answers for some rows, and the truth.

    Classification: `predictions` and `targets` are class numbers, `probabilities` is (rows, classes). A target that is
    no class of the model is -1. Multi-label: all three are (rows, labels), and a missing label is NaN. Regression: all
    are numbers in the unit of the target, and `probabilities` is empty. Floats are float64.
    """

    task: TaskName
    predictions: Array
    probabilities: Array
    targets: Array
    positive: int = 1
    """Of two classes, the one that sensitivity, precision and the like are about."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def is_binary(self) -> bool:
        """Return whether there are two classes."""
        return self.probabilities.shape[1:] == (2,)

    def take(self, rows: Indices) -> Answers:
        """The answers for some of the rows."""
        said, given, true = self.predictions[rows], self.probabilities[rows], self.targets[rows]
        return replace(self, predictions=said, probabilities=given, targets=true)

    def label(self, number: int) -> Answers:
        """Return one label as a binary question, for the rows with a known value."""
        targets = self.targets.reshape(self.predictions.shape)[:, number]
        known = ~np.isnan(targets)
        yes = self.probabilities[known, number]
        predicted = self.predictions[known, number].astype(np.int64)
        return Answers("classification", predicted, np.stack([1 - yes, yes], 1), targets[known].astype(np.int64))

    def labels(self) -> Iterator[Answers]:
        """Every label by itself."""
        return map(self.label, range(self.predictions.shape[1]))


@dataclass(frozen=True)
class Metric:
    """A metric: `of` turns answers into one number, or, if `additive`, into one number per row, of which the mean
    counts.

    `of` returns NaN where the metric is not defined; `undefined` says in words when that is. It is called with at least
    one row. Of several labels an additive metric takes the mean over all known cells, another one over the labels.
    """

    of: Callable[[Answers], float | Array]
    tasks: tuple[TaskName, ...]
    unit: Unit = "number"
    higher_is_better: bool = True
    additive: bool = False
    by_class: bool = False
    """True if it is computed per class, so that few rows of a class can decide it."""
    undefined: str = "it has no rows"
    name: str = ""
    label: int | None = None
    """The number of the one label that counts; None: all."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.of.__doc__)
        object.__setattr__(self, "__module__", self.of.__module__)  # where pickle looks for the name

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle a metric by the name that its decorator has taken from `of`, so that workers import it."""
        name: str = self.of.__name__
        there = getattr(sys.modules.get(self.of.__module__), name, None)
        if there is self:
            return name
        if isinstance(there, Metric) and there.of is self.of and self.label is not None:
            return there.for_label, (self.label, self.name.partition(":")[2])
        return Metric, tuple(getattr(self, field.name) for field in fields(self))

    def value(self, answers: Answers) -> float:
        """The score of these answers; NaN where it is not defined, or where an answer is not a number."""
        if self.label is not None:
            answers = answers.label(self.label)
        if not len(answers) or not _are_numbers(answers):
            return math.nan
        if answers.task != "multilabel":
            return float(np.mean(self.of(answers)))
        found = [self.of(one) for one in answers.labels() if len(one)]
        if self.additive:
            return float(np.concatenate([np.asarray(one) for one in found]).mean()) if found else math.nan
        known = [float(one) for one in found if not math.isnan(float(one))]
        return float(np.mean(known)) if known else math.nan

    def for_label(self, number: int, name: str) -> Metric:
        """The same metric for one label of several."""
        return replace(self, label=number, name=f"{self.name}:{name}")


def _are_numbers(answers: Answers) -> bool:
    return bool(np.isfinite(answers.probabilities).all() and np.isfinite(answers.predictions).all())


def metric(
    *tasks: TaskName,
    unit: Unit = "number",
    higher_is_better: bool = True,
    additive: bool = False,
    by_class: bool = False,
    undefined: str = "it has no rows",
) -> Callable[[Callable[[Answers], float | Array]], Metric]:
    """Make a metric of the function below. To register it is another step: ``METRICS.named``, or an entry point."""

    def make(of: Callable[[Answers], float | Array]) -> Metric:
        name = of.__name__.replace("_", "-")
        return Metric(of, tasks, unit, higher_is_better, additive, by_class, undefined, name)

    return make
