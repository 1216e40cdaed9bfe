"""Trains a narrower net within the net: HeteroFL's clients."""

from __future__ import annotations

import numpy as np
import torch

from sparsona.message import Mask, Vector
from sparsona.training.chain import chain_or_none
from sparsona.training.slim import SlimNet, plan
from sparsona.training.transform import GradientSpans, WeightTransform
from sparsona.training.vector import Flat


class Narrow(WeightTransform):
    """Runs the weights of `mask`, times `factors`, in a really smaller net where the module is a chain of layers.

    `labels` are the outputs that the client has samples of; the others count as 0 in its loss.
    """

    def __init__(self, mask: Mask, factors: Vector, labels: Mask | None) -> None:
        self._mask = mask
        self._factors = torch.from_numpy(factors)
        self._absent = None if labels is None or labels.all() else torch.from_numpy(~labels)
        self._net: SlimNet | None = None
        self._ready = False

    def forward(self, flat: Flat, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
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

    def backward(self, flat: Flat, weights: torch.Tensor) -> GradientSpans | None:
        if self._net is None:
            flat.gradient.mul_(self._factors)
        else:
            flat.gradient[self._net.index] = self._net.gradient * self._small
        return None

    def active(self) -> tuple[Mask | None, Mask | None]:
        return self._mask, self._mask

    def _prepare(self, flat: Flat) -> None:
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
