"""Models that are plain arrays: a linear one, and the constant answer, which looks at no row's inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from sparsona.data.dataset import Array
from sparsona.experts.rows import OwnRows
from sparsona.message import Vector


@dataclass(frozen=True)
class Constant:
    """The same outputs for every row: log probabilities of classes, log odds of labels, or numbers."""

    outputs: Vector

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs, once per row."""
        return torch.from_numpy(self.outputs).to(inputs.device).repeat(len(inputs), 1)


@dataclass(frozen=True)
class LinearModel:
    """Outputs are `weight` times the inputs plus `bias`: log odds of classes and labels, or numbers."""

    weight: Array
    bias: Vector

    def predict(self, forward: Callable[[Vector, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs for prepared inputs of any shape."""
        weight, bias = (torch.from_numpy(part).to(inputs.device) for part in (self.weight, self.bias))
        return torch.nn.functional.linear(inputs.flatten(1).float(), weight, bias)


def fit_constant(rows: OwnRows) -> Constant:
    """Return the constant answer: class frequencies, the share of each label, or the mean.

    One more row is spread evenly over all classes.

    >>> x, none = np.zeros((3, 1), np.float32), np.zeros(0, np.int64)
    >>> seen = OwnRows("classification", 2, x, np.array([0, 0, 1]), x[:0], none, 0)
    >>> np.exp(fit_constant(seen).outputs).round(3)
    array([0.625, 0.375], dtype=float32)
    """
    count, targets = len(rows.targets), rows.targets
    if rows.kind == "classification":
        shares = np.bincount(targets, minlength=rows.outputs) / max(count, 1)
        return Constant(np.log(smoothed(shares, count, rows.outputs)).astype(np.float32))
    known = ~np.isnan(targets)
    counts = known.sum(0)
    means = np.where(known, targets, 0.0).sum(0, dtype=np.float64) / np.maximum(counts, 1)
    if rows.kind == "multilabel":
        shares = smoothed(means, counts, 2)
        return Constant((np.log(shares) - np.log1p(-shares)).astype(np.float32))
    return Constant(means.astype(np.float32))


def smoothed(shares: Array, rows: int | Array, classes: int) -> Array:
    """Return probabilities after one more row that is spread evenly over all classes.

    No class is impossible then: a class that a client has never seen costs a finite log loss.
    """
    out: Array = (shares * rows + 1 / classes) / (np.asarray(rows) + 1)
    return out
