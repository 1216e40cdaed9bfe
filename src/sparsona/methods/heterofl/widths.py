"""Narrower nets within a net: the first channels and units of every hidden layer."""

from __future__ import annotations

from math import ceil

import numpy as np

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.message import Mask


def narrow(layout: Layout, rate: float) -> Mask:
    """The weights of the net whose hidden layers have the first ceil(rate * width) channels; outputs are all there.

    >>> from torch import nn
    >>> mask = narrow(Layout.of(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))), 0.5)
    >>> mask[:12].reshape(4, 3)[:, 0], mask[16:24].reshape(2, 4)[0]
    (array([ True,  True, False, False]), array([ True,  True, False, False]))
    """
    out = np.zeros(layout.size, np.bool_)
    before, kept_before, head = 0, 0, layout.layers[-1]
    for layer in layout.layers:
        tensors = {t.name.rpartition(".")[2]: t for t in layout.tensors if t.name.rpartition(".")[0] == layer}
        weight = tensors.pop("weight", None)
        if weight is None or len(weight.shape) < 2 or set(tensors) - {"bias"}:
            raise InputError(f"layer {layer} is neither linear nor a convolution: only chains of these can be narrowed")
        width, columns = weight.shape[:2]
        pixels, rest = divmod(columns, before) if before else (0, 0)
        if rest:
            raise InputError(f"layer {layer} does not follow the one before it: only chains of layers can be narrowed")
        kept = width if layer == head else ceil(rate * width)
        view = out[weight.slice].reshape(weight.shape)
        view[:kept, : kept_before * pixels if before else columns] = True
        if "bias" in tensors:
            out[tensors["bias"].start : tensors["bias"].start + kept] = True
        before, kept_before = width, kept
    return out


def output_rows(layout: Layout, rows: Mask) -> Mask:
    """All weights but those of the head that lead to outputs outside `rows`."""
    out = np.ones(layout.size, np.bool_)
    for tensor in layout.tensors:
        if tensor.name.rpartition(".")[0] == layout.layers[-1]:
            out[tensor.slice] = np.repeat(rows, tensor.size // len(rows))
    return out
