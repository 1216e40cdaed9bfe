"""A client's class shares as a shift of the model's outputs (logit adjustment), or as weights of its examples.

Menon and others, "Long-tail Learning via Logit Adjustment", ICLR 2021; between clients: Zhang and others, "Federated
Learning with Label Distribution Skew via Logits Calibration", ICML 2022. The runner adds the shift while a client
trains, so no message contains it; the personal layer adds it to the model that the client uses.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.message import Vector


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
