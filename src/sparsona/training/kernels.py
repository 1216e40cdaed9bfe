"""The arithmetic of a chain of linear layers, compiled: whole trainings of a tiny net in one call.

`layers` has a row for each layer: the place of its weights and of its biases (-1: none) in the model's vector, its
outputs, its inputs, and its activation. `values` has a row for each sample of a batch: the inputs, then each layer's
outputs; `errors` holds the derivatives of the loss in the same places.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsona.compiled import compiled_sums
from sparsona.message import Mask
from sparsona.training.chain import RELU, SIGMOID, TANH
from sparsona.training.step import LARGEST

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]

LARGEST_SQUARE = LARGEST**2


@compiled_sums
def gather(raw: npt.NDArray[Any], scale: Floats, shift: Floats, missing: bool, chosen: Ints, values: Floats) -> None:
    """Write the chosen samples to `values`, normalised; where values may be missing, a mark of each follows."""
    width = len(scale)
    for row in range(len(chosen)):
        sample, out = raw[chosen[row]], values[row]
        for i in range(width):
            out[i] = sample[i] * scale[i] + shift[i]
        if missing:
            for i in range(width):
                absent = np.isnan(out[i])
                out[width + i] = np.float32(absent)
                out[i] = np.float32(0) if absent else out[i]


@compiled_sums
def _dot(a: Floats, b: Floats) -> np.float32:
    total = np.float32(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@compiled_sums
def _square(a: Floats) -> np.float64:
    """The squared norm in double precision: in single precision, small numbers have a square of zero."""
    total = np.float64(0)
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(a[i])
    return total


@compiled_sums
def _add(to: Floats, what: Floats, by: np.float32) -> None:
    for i in range(len(to)):
        to[i] += by * what[i]


@compiled_sums
def forward(weights: Floats, layers: Ints, values: Floats, count: int) -> int:
    """Run the first `count` rows of `values` through all layers; return where the outputs begin."""
    start = 0
    for layer in range(len(layers)):
        weight, bias, outputs, inputs, activation = layers[layer]
        stop = start + inputs
        for unit in range(outputs):
            row = weights[weight + unit * inputs : weight + (unit + 1) * inputs]
            base = weights[bias + unit] if bias >= 0 else np.float32(0)
            for k in range(count):
                value = _dot(row, values[k, start:stop]) + base
                if activation == RELU:
                    value = max(value, np.float32(0)) if value == value else value
                elif activation == TANH:
                    value = np.float32(math.tanh(value))
                elif activation == SIGMOID:
                    value = np.float32(1) / (np.float32(1) + np.exp(-value))
                values[k, stop + unit] = value
        start = stop
    return start


@compiled_sums
def cross_entropy(values: Floats, errors: Floats, start: int, prior: Floats, labels: Ints, share: Floats) -> float:
    """The sum of the samples' losses, each times its `share` and the number of samples; their errors are written.

    `prior` is added to the outputs, one number per class.
    """
    total, count, classes = 0.0, len(labels), len(prior)
    for k in range(count):
        outputs, slope = values[k, start : start + classes], errors[k, start : start + classes]
        most = outputs[0] + prior[0]
        for unit in range(1, classes):
            most = max(most, outputs[unit] + prior[unit])
        mass = np.float32(0)
        for unit in range(classes):
            slope[unit] = np.exp(outputs[unit] + prior[unit] - most)
            mass += slope[unit]
        label = labels[k]
        total += np.float64(share[k]) * count * (np.log(mass) - (outputs[label] + prior[label] - most))
        for unit in range(classes):
            slope[unit] *= share[k] / mass
        slope[label] -= share[k]
    return total


@compiled_sums
def backward(
    weights: Floats,
    into: Floats,
    layers: Ints,
    values: Floats,
    errors: Floats,
    start: int,
    count: int,
    keep: np.float32,
    by: np.float32,
) -> None:
    """Multiply `into`, which may be the weights themselves, with `keep` and add `by` times the gradient.

    `errors` holds the derivatives of the loss by the last layer's outputs, which begin at `start`.
    """
    for layer in range(len(layers) - 1, -1, -1):
        weight, bias, outputs, inputs, activation = layers[layer]
        before = start - inputs
        for k in range(count):
            for unit in range(outputs):
                value = values[k, start + unit]
                if activation == RELU:
                    if value <= 0:
                        errors[k, start + unit] = 0
                elif activation == TANH:
                    errors[k, start + unit] *= 1 - value * value
                elif activation == SIGMOID:
                    errors[k, start + unit] *= value * (1 - value)
        if layer:
            for k in range(count):
                errors[k, before:start] = 0
                for unit in range(outputs):
                    error = errors[k, start + unit]
                    if error != 0:
                        row = weights[weight + unit * inputs : weight + (unit + 1) * inputs]
                        _add(errors[k, before:start], row, error)
        for unit in range(outputs):
            row = into[weight + unit * inputs : weight + (unit + 1) * inputs]
            if keep != 1:
                row *= keep
                if bias >= 0:
                    into[bias + unit] *= keep
            for k in range(count):
                step = by * errors[k, start + unit]
                if step != 0:
                    _add(row, values[k, before:start], step)
                    if bias >= 0:
                        into[bias + unit] += step
        start = before


@compiled_sums
def add_clipped(
    weights: Floats,
    into: Floats,
    layers: Ints,
    values: Floats,
    errors: Floats,
    start: int,
    count: int,
    most: np.float32,
    mask: Mask,
) -> None:
    """Add each sample's gradient to `into`, scaled so that its norm within the mask is at most `most`.

    `errors` holds the derivatives of each sample's own loss by the last layer's outputs. The squared norm of a layer's
    gradient is the sum over its weights of squared error times squared input. The mask does not apply to the sum. A
    gradient whose scale would leave the normal numbers of single precision counts as zero: rounding could double it.
    """
    squares = np.zeros(count, np.float64)
    end = start
    for layer in range(len(layers) - 1, -1, -1):
        weight, bias, outputs, inputs, activation = layers[layer]
        before = start - inputs
        for k in range(count):
            if layer:
                errors[k, before:start] = 0
            whole = _square(values[k, before:start])
            for unit in range(outputs):
                value = values[k, start + unit]
                error = errors[k, start + unit]
                if activation == RELU:
                    error = np.float32(0) if value <= 0 else error
                elif activation == TANH:
                    error *= 1 - value * value
                elif activation == SIGMOID:
                    error *= value * (1 - value)
                errors[k, start + unit] = error
                if error == 0:
                    continue
                first = weight + unit * inputs
                if layer:
                    _add(errors[k, before:start], weights[first : first + inputs], error)
                held = whole
                if len(mask):
                    held = np.float64(0)
                    for i in range(inputs):
                        if mask[first + i]:
                            held += np.float64(values[k, before + i]) * np.float64(values[k, before + i])
                if bias >= 0 and (len(mask) == 0 or mask[bias + unit]):
                    held += 1
                square = np.float64(error) * error
                squares[k] += square * held if square <= LARGEST_SQUARE and whole <= LARGEST_SQUARE else np.inf
        start = before
    for k in range(count):
        norm = np.sqrt(squares[k])
        if not squares[k] <= LARGEST_SQUARE:
            squares[k] = 0.0
        else:
            squares[k] = most / norm if norm > most else 1.0
    start = end
    for layer in range(len(layers) - 1, -1, -1):
        weight, bias, outputs, inputs, activation = layers[layer]
        before = start - inputs
        for unit in range(outputs):
            row = into[weight + unit * inputs : weight + (unit + 1) * inputs]
            for k in range(count):
                step = np.float32(squares[k]) * errors[k, start + unit] if squares[k] > 0 else np.float32(0)
                if step != 0:
                    _add(row, values[k, before:start], step)
                    if bias >= 0:
                        into[bias + unit] += step
        start = before


@compiled_sums
def descend(
    weights: Floats,
    layers: Ints,
    raw: npt.NDArray[Any],
    scale: Floats,
    shift: Floats,
    missing: bool,
    targets: Ints,
    chosen: Ints,
    bounds: Ints,
    share: Floats,
    repeats: int,
    rate: np.float32,
    keep: np.float32,
    fixed: Floats,
    mask: Mask,
    prior: Floats,
    values: Floats,
    errors: Floats,
) -> float:
    """Take gradient steps of the cross-entropy in place, a batch after the other; return the sum of the losses.

    Batch i has the samples chosen[bounds[i]:bounds[i + 1]]. A step multiplies the weights with `keep` and subtracts
    `rate` times the gradient. Where there is a `mask`, weights outside of it are those of `fixed` again after the step.
    """
    total = 0.0
    bits, moves = weights.view(np.uint32), np.zeros(len(mask), np.uint32)
    for i in range(len(mask)):
        moves[i] -= np.uint32(mask[i])  # all ones or none: to take bits is quicker than to choose
    stays = fixed.view(np.uint32)
    for batch in range(len(bounds) - 1):
        own = chosen[bounds[batch] : bounds[batch + 1]]
        shares, labels = share[bounds[batch] : bounds[batch + 1]], targets[own]
        gather(raw, scale, shift, missing, own, values)
        for _ in range(repeats):
            start = forward(weights, layers, values, len(own))
            total += cross_entropy(values, errors, start, prior, labels, shares)
            backward(weights, weights, layers, values, errors, start, len(own), keep, -rate)
            for i in range(len(mask)):
                bits[i] = bits[i] & moves[i] | stays[i] & ~moves[i]
    return total
