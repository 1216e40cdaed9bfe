"""Objectives: the loss that is trained, the prediction, and the metrics; class shares as a shift or as weights.

Classification is the default. A client's class shares shift the model's outputs (logit adjustment: Menon and others,
"Long-tail Learning via Logit Adjustment", ICLR 2021; between clients: Zhang and others, "Federated Learning with Label
Distribution Skew via Logits Calibration", ICML 2022), or they weigh its examples. The runner adds the shift while a
client trains, so no message contains it; the personal layer adds it to the model that the client uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from sparsona.data.dataset import Array, Indices
from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.message import Vector
from sparsona.metrics import Answers, Metric, TaskName, chosen
from sparsona.metrics._threshold import ThresholdRule
from sparsona.words import counted


def _single(targets: Array) -> Array:
    return targets.astype(np.float32) if targets.dtype == np.float64 else targets


@dataclass(frozen=True)
class Objective:
    """A loss per example, a prediction from the model's outputs, and a metric over a client's test set.

    `metric` takes predictions and targets as arrays and may return NaN where it is not defined (no labels at all).
    `learnt` makes of all targets what the loss gets: by default the targets themselves, of float64 as float32.
    `metrics`, where there are any, are measured in the place of `metric`, and the first of them decides. They are for
    the three tasks of this module: an objective of another `task` has its own metric alone.
    """

    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    predict: Callable[[torch.Tensor], torch.Tensor]
    metric: Callable[[Array, Array], float]
    metric_name: str = "accuracy"
    higher_is_better: bool = True
    learnt: Callable[[Array], Array] = _single
    task: TaskName | None = None
    metrics: tuple[Metric, ...] = ()
    positive: int = 1
    """Of two classes, the one that sensitivity, precision and the like are about."""
    rule: ThresholdRule | None = None
    """How the threshold of the positive class is chosen on validation rows; None: the likelier class is predicted."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Return the names of the measured metrics; the first decides."""
        return tuple(one.name for one in self.metrics) or (self.metric_name,)

    def threshold(self, outputs: torch.Tensor, targets: Array) -> float | None:
        """Return the threshold that validation rows choose; None if none is requested or all rows are of one class."""
        return None if self.rule is None or not len(targets) else self.rule.choose(self.answers(outputs, targets))

    def measure(self, outputs: torch.Tensor, targets: Array, threshold: float | None = None) -> tuple[float, ...]:
        """The score of each metric on some rows; NaN where it is not defined."""
        if not len(targets):
            return (float("nan"),) * len(self.metric_names)
        if not self.metrics and threshold is None:
            return (self.metric(self.predict(outputs).cpu().numpy(), targets),)
        answers = self.answers(outputs, targets, threshold)
        if not self.metrics:
            return (self.metric(answers.predictions, targets),)
        return tuple(one.value(answers) for one in self.metrics)

    def answers(self, outputs: torch.Tensor, targets: Array, threshold: float | None = None) -> Answers:
        """Return a model's outputs as answers; with a threshold, probabilities from it on mean the positive class."""
        assert self.task is not None
        found = self.predict(outputs).cpu().numpy()
        given = probabilities(outputs, self.task)
        if self.task == "classification":
            if threshold is not None:
                found = np.where(given[:, self.positive] >= threshold, self.positive, 1 - self.positive)
            return Answers(self.task, found, given, targets, self.positive)
        wide = found.reshape(len(found), -1).astype(np.float64)
        truth = targets.reshape(wide.shape).astype(np.float64)
        return Answers(self.task, wide, given.reshape(len(wide), -1), truth)

    def measured_by(
        self, names: Sequence[str], labels: Sequence[str] = (), positive: str = "", threshold: str = ""
    ) -> Objective:
        """Return the objective with these metrics; `labels` are the names of the classes, or of several targets."""
        if not names and not positive and not threshold:
            return self
        if self.task is None:
            raise InputError("an objective of your own has its own metric: leave metrics out")
        place, rule = _place(positive, labels, self.task), ThresholdRule.parse(threshold)
        if rule is not None and (self.task != "classification" or len(labels) != 2):
            raise InputError("a threshold is for two classes: leave evaluation.threshold out")
        if not names:
            return replace(self, positive=place, rule=rule)
        found = chosen(names, self.task, labels)
        first = found[0]
        return replace(
            self,
            metrics=found,
            metric_name=first.name,
            higher_is_better=first.higher_is_better,
            positive=place,
            rule=rule,
        )


def _place(positive: str, classes: Sequence[str], task: TaskName) -> int:
    if not positive:
        return 1
    if task != "classification" or len(classes) != 2:
        raise InputError(f"evaluation.positive names one of two classes, and here are {counted(len(classes), 'class')}")
    if positive not in classes:
        raise InputError(f"evaluation.positive={positive!r} is no class: choose {' or '.join(classes)}")
    return list(classes).index(positive)


def probabilities(outputs: torch.Tensor, task: TaskName) -> Array:
    """Return the probability of each class or label, in float64 because float32 rounds sure answers to ties.

    A regression has none: (rows, 0).
    """
    if task == "regression":
        return np.zeros((len(outputs), 0))
    wide = outputs.double()
    found: Array = (torch.softmax(wide, 1) if task == "classification" else torch.sigmoid(wide)).cpu().numpy()
    return found


def _cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def _argmax(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.argmax(1)


def _accuracy(predictions: Array, targets: Array) -> float:
    return float((predictions == targets).mean()) if len(targets) else float("nan")


def classification() -> Objective:
    """Cross-entropy, the likeliest class, accuracy."""
    return Objective(_cross_entropy, _argmax, _accuracy, task="classification")


def _squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets.reshape(outputs.shape)).square().flatten(1).mean(1)


def _same(outputs: torch.Tensor) -> torch.Tensor:
    return outputs


def _absolute_error(predictions: Array, targets: Array) -> float:
    return float(np.abs(predictions - targets.reshape(predictions.shape)).mean()) if len(targets) else float("nan")


def regression(center: Sequence[float] = (), spread: Sequence[float] = ()) -> Objective:
    """Squared loss, the mean absolute error as the metric (lower is better).

    With `center` and `spread` a model learns (target - center) / spread; predictions and the metric are in the
    target's own units, as float64: of a large target float32 may hold nothing but its mean.
    """
    if not center:
        return Objective(_squared, _same, _absolute_error, "mae", higher_is_better=False, task="regression")
    units = tuple(center), tuple(spread)
    back, learnt = partial(_in_units, *units), partial(_without_units, *units)
    return Objective(_squared, back, _absolute_error, "mae", False, learnt, task="regression")


def _without_units(center: tuple[float, ...], spread: tuple[float, ...], targets: Array) -> Array:
    found: Array = (targets.reshape(-1, len(center)) - np.array(center)) / np.array(spread)
    return found.reshape(targets.shape).astype(np.float32)


def _in_units(center: tuple[float, ...], spread: tuple[float, ...], outputs: torch.Tensor) -> torch.Tensor:
    wide = outputs.double()
    return wide * wide.new_tensor(spread) + wide.new_tensor(center)


def _masked_bce(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    targets = targets.reshape(outputs.shape)
    known = ~torch.isnan(targets)
    losses = F.binary_cross_entropy_with_logits(outputs, torch.where(known, targets, 0.0), reduction="none")
    return (losses * known).flatten(1).sum(1) / known.flatten(1).sum(1).clamp(min=1)


def _positive(outputs: torch.Tensor) -> torch.Tensor:
    return (outputs > 0).to(outputs.dtype)


def _known_accuracy(predictions: Array, targets: Array) -> float:
    targets = targets.reshape(predictions.shape)
    known = ~np.isnan(targets)
    return float((predictions == targets)[known].mean()) if known.any() else float("nan")


def multilabel() -> Objective:
    """One yes or no per output; a NaN label is missing: it neither trains nor counts."""
    return Objective(_masked_bce, _positive, _known_accuracy, task="multilabel")


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


def log_prior(labels: npt.NDArray[np.int64], classes: int) -> Vector:
    """Return the logarithm of each class's share of the labels, every class counted once more than it occurs.

    >>> np.exp(log_prior(np.array([0, 0, 1]), 2)).round(3)
    array([0.6, 0.4], dtype=float32)
    """
    counts = np.bincount(labels, minlength=classes) + 1.0
    out: Vector = np.log(counts / counts.sum()).astype(np.float32)
    return out


def output_bias(layout: Layout, classes: int) -> slice:
    """Return where the last layer's bias stands, which must have one number per class.

    >>> from torch import nn
    >>> output_bias(Layout.of(nn.Linear(3, 2)), 2)
    slice(6, 8, None)
    """
    last = layout.tensors[-1]
    if not classes or last.shape != (classes,):
        raise InputError(
            "training.logit_prior needs classes and a model that ends in a bias with one number per class: turn it off"
        )
    return last.slice


def balanced_weights(labels: npt.NDArray[np.int64], classes: int, least: int = 1) -> Vector:
    """The weight of each class: the inverse of its share among the client's examples; the mean over them is 1.

    A class that fewer than `least` examples have weighs as if it had that many: else few rows would decide a training.

    >>> balanced_weights(np.array([0, 0, 0, 0, 1, 1]), 3)
    array([0.75, 1.5 , 0.  ], dtype=float32)
    """
    counts = np.bincount(labels, minlength=classes)[:classes].astype(np.float64)
    weights = np.divide(1.0, np.maximum(counts, least), out=np.zeros(classes), where=counts > 0)
    out: Vector = (weights * counts.sum() / max(float((weights * counts).sum()), 1e-12)).astype(np.float32)
    return out
