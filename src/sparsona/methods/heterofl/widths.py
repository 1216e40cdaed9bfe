"""Narrower nets within a net: the first channels and units of every hidden layer."""

from math import ceil

import numpy as np
import torch

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.message import Mask, Vector
from sparsona.training.chain import chain_or_none
from sparsona.training.slim import SlimNet, plan
from sparsona.training.transform import GradientSpans, WeightTransform
from sparsona.training.vector import FlatModule


class Narrow(WeightTransform):
    """Runs the weights of `mask`, times `factors`, in a smaller net if the module is a chain of layers.

    `labels` are the outputs with samples at the client; the others count as 0 in its loss.
    """

    def __init__(self, mask: Mask, factors: Vector, labels: Mask | None) -> None:
        self._mask = mask
        self._factors = torch.from_numpy(factors)
        self._absent = None if labels is None or labels.all() else torch.from_numpy(~labels)
        self._net: SlimNet | None = None
        self._ready = False

    def forward(self, flat: FlatModule, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        if not self._ready:
            self._prepare(flat)
        with torch.no_grad():
            if self._net is None:
                torch.mul(weights, self._factors, out=flat.weights[: len(weights)])
            else:
                self._net.gradient.zero_()
                torch.mul(weights[self._net.index], self._small, out=self._net.weights)
        outputs: torch.Tensor = flat.module(inputs) if self._net is None else self._net(inputs, training=True)
        return outputs if self._absent is None else outputs.masked_fill(self._absent, 0.0)

    def backward(self, flat: FlatModule, weights: torch.Tensor) -> GradientSpans | None:
        if self._net is None:
            flat.gradient.mul_(self._factors)
        else:
            flat.gradient[self._net.index] = self._net.gradient * self._small
        return None

    def active(self) -> tuple[Mask | None, Mask | None]:
        return self._mask, self._mask

    def _prepare(self, flat: FlatModule) -> None:
        device = flat.weights.device
        self._ready = True
        self._factors = self._factors.to(device)
        self._absent = None if self._absent is None else self._absent.to(device)
        if np.all(self._mask):
            return
        chain = chain_or_none(flat.module)
        if chain is None:
            return  # the whole net with zeros gives the same, only slower
        self._net = SlimNet(chain, plan(chain, flat.layout, self._mask, training=True), str(device))
        self._small = self._factors[self._net.index]


def narrow(layout: Layout, rate: float) -> Mask:
    """Return the weights of the net whose hidden layers have the first ceil(rate * width) channels, with all outputs.

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
    """Return all weights but those of the head for outputs outside `rows`."""
    out = np.ones(layout.size, np.bool_)
    for tensor in layout.tensors:
        if tensor.name.rpartition(".")[0] == layout.layers[-1]:
            out[tensor.slice] = np.repeat(rows, tensor.size // len(rows))
    return out
