"""Sketches: a few numbers about a client's data by which the server finds similar clients.

What each one reveals: `label` how many samples of each class there are, and so how many in all; `shares` the classes'
shares only; `mean` the mean sample (of faces, a mean face); `cov` how features go together, and with few samples the
samples themselves; `kernel` means of random waves, from which means of any smooth function of a sample can be
estimated; `model` a model after an epoch, with all that gradients are known to leak. Noise blurs it, without any
guarantee: a guarantee needs a bound on what one sample may change.
"""

from dataclasses import replace
from math import prod
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.data.dataset import Array
from sparsona.errors import InputError
from sparsona.message import Vector
from sparsona.method import Task
from sparsona.methods.pfednet.graph import Metric
from sparsona.training.local import Local

Kind: TypeAlias = Literal["label", "shares", "mean", "cov", "kernel", "model"]

WAVES = 256
"""The size of a kernel sketch."""


def sketch_size(kind: Kind, task: Task) -> int:
    """Return the number of numbers in a sketch."""
    features = prod(task.shape)
    return {
        "label": task.classes,
        "shares": task.classes,
        "mean": features,
        "cov": features * (features + 1) // 2,
        "kernel": WAVES,
        "model": task.layout.size,
    }[kind]


def metric_of(kind: Kind) -> Metric:
    """Return the distance of sketches: covariances by the sum of absolute differences, others by Euclid."""
    return "manhattan" if kind == "cov" else "euclidean"


def sketch_of(kind: Kind, local: Local, noise: float = 0.0) -> Vector:
    """Return the sketch of a client's training samples, as the model sees them."""
    if kind == "model":
        config = replace(local.config, epochs=1, steps=None)
        found = local.train(local.task.initial, config, stream="sketch").weights
    elif kind in ("label", "shares"):
        found = label_counts(local.countable_targets(), local.task.classes, kind == "shares")
    else:
        inputs = local.inputs()
        if not inputs.is_floating_point():
            raise InputError(f"sketch={kind} needs samples of numbers, these are words: choose label, shares or model")
        samples = inputs.flatten(1).cpu().numpy()
        if kind == "kernel":
            found = kernel_mean(samples, WAVES, local.task.chance.rng("sketch/waves"))
        else:
            found = feature_mean(samples) if kind == "mean" else feature_covariance(samples)
    return blurred(found, noise, local.rng("sketch/noise"))


def label_counts(targets: Array, classes: int, shares: bool = False) -> Vector:
    """Return the samples of each class, as numbers or as shares. Other targets than classes have none."""
    if not classes:
        raise InputError("these data have no classes to count: choose sketch=mean, cov, kernel or model")
    counts = np.bincount(targets, minlength=classes)
    return (counts / max(len(targets), 1) if shares else counts).astype(np.float32)


def feature_mean(samples: Array) -> Vector:
    """Return the mean sample."""
    return np.asarray(samples.mean(0, dtype=np.float64), np.float32)


def feature_covariance(samples: Array) -> Vector:
    """Return the upper triangle of the covariance matrix, row by row, doubled off the diagonal.

    So the sum of absolute differences of two such vectors is that of the matrices.
    """
    centred = samples - samples.mean(0, dtype=np.float64)
    matrix = centred.T @ centred / len(samples)
    rows, columns = np.triu_indices(len(matrix))
    out: Vector = (matrix[rows, columns] * np.where(rows == columns, 1, 2)).astype(np.float32)
    return out


def kernel_mean(samples: Array, waves: int, rng: np.random.Generator) -> Vector:
    """Return the mean of random Fourier features (Rahimi and Recht 2007).

    Its distances are those of the distributions under a Gaussian kernel as wide as normalised samples are apart. The
    same `rng` must be used for all.
    """
    features = samples.shape[1]
    frequencies = rng.standard_normal((features, waves)) / np.sqrt(features)
    phases = rng.uniform(0, 2 * np.pi, waves)
    total = np.zeros(waves)
    for start in range(0, len(samples), 4096):
        total += np.cos(samples[start : start + 4096] @ frequencies + phases).sum(0)
    out: npt.NDArray[np.float64] = np.sqrt(2 / waves) * total / len(samples)
    return out.astype(np.float32)


def blurred(sketch: Vector, noise: float, rng: np.random.Generator) -> Vector:
    """Add Gaussian noise of `noise` times the root mean square of the sketch's entries."""
    size = noise * float(np.sqrt(np.mean(np.square(sketch, dtype=np.float64)))) if noise else 0.0
    return (sketch + size * rng.standard_normal(len(sketch))).astype(np.float32) if size else sketch
