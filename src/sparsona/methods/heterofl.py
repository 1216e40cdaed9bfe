"""HeteroFL: Diao, Ding, Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous
Clients", ICLR 2021. Weak clients train a narrower net, the first channels of every layer; the server averages each
weight over those who have it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import ClassVar, Literal

import numpy as np
import torch

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.message import Mask, Message, Positions, Vector
from sparsona.method import Arrival, ClientId, Fit, Method, ServerContext, Task
from sparsona.methods import METHODS
from sparsona.ops.masks import scatter
from sparsona.options import option
from sparsona.training.chain import chain_or_none
from sparsona.training.job import WeightTransform
from sparsona.training.local import Local
from sparsona.training.slim import SlimNet, plan
from sparsona.training.step import GradientSpans
from sparsona.training.vector import FlatModule


@dataclass(frozen=True)
class ServerState:
    """The full-width model."""

    weights: Vector


@METHODS.add
@dataclass(frozen=True)
class HeteroFL(Method[ServerState, None]):
    """Weak clients train a narrower network, whose weights are a part of the global network's.

    A network of half the width has a quarter of the weights; width 0.7071 has half of them.
    """

    no_budget: ClassVar[str] = "heterofl trains through a weight transform, which gives no gradient of one row"

    rate: float = option(0.7071, "width of a weak client's network", gt=0, le=1)
    full: float = option(0.1, "share of clients that train the whole network", ge=0, le=1)
    scaler: bool = option(True, "divide the outputs of hidden layers by the width")
    own_labels: bool = option(True, "a client trains and averages only the outputs of labels that it has")
    test_labels: Literal["own", "all"] = option(
        "own", "predict only labels that the client has, as the authors do (no other method may), or all"
    )

    def start_server(self, task: Task) -> ServerState:
        narrow(task.layout, self.rate)
        return ServerState(task.initial)

    def start_client(self, task: Task, client: ClientId) -> None:
        return None

    def send(self, server: ServerState, to: ClientId, context: ServerContext) -> Message:
        return Message(weights=server.weights[self._mask(to, context.task)])

    def fit(self, state: None, down: Message, local: Local) -> Fit[None]:
        mask, labels = self._mask(local.client, local.task), self._labels(local)
        narrowed = Narrow(mask, self._factors(local), labels)
        trained = local.train(self._received(down, local), mask=mask, transform=narrowed).weights
        told = {} if labels is None else {"labels": Positions.of(labels)}
        return Fit(None, Message(weights=trained[mask], examples=local.examples, **told), self._used(trained, local))

    def aggregate(self, server: ServerState, arrivals: Sequence[Arrival], context: ServerContext) -> ServerState:
        layout = context.task.layout
        total, holders = np.zeros(layout.size), np.zeros(layout.size, np.int32)
        for arrival in arrivals:
            mask, message = self._mask(arrival.client, context.task), arrival.message
            values = scatter(mask, message.vector("weights", int(mask.sum())))
            if "labels" in message:
                mask = mask & output_rows(layout, message.positions("labels").mask())
            total[mask] += values[mask]
            holders += mask
        np.divide(total, holders, out=total, where=holders > 0)
        return ServerState(np.where(holders > 0, total, server.weights).astype(np.float32))

    def personal_model(self, state: None, down: Message, local: Local) -> Vector:
        return self._used(self._received(down, local), local)

    def _received(self, down: Message, local: Local) -> Vector:
        mask = self._mask(local.client, local.task)
        return scatter(mask, down.vector("weights", int(mask.sum())))

    def _used(self, weights: Vector, local: Local) -> Vector:
        """Return the tested weights: scaled, and without weights that lead to other clients' labels."""
        out, labels = weights * self._factors(local), self._labels(local)
        return out if labels is None or self.test_labels == "all" else out * output_rows(local.layout, labels)

    def _rate(self, client: ClientId, task: Task) -> float:
        order = task.chance.rng("widths").permutation(len(task.clients))
        strong = {task.clients[i] for i in order[: round(self.full * len(task.clients))]}
        return 1.0 if client in strong else self.rate

    def _mask(self, client: ClientId, task: Task) -> Mask:
        return narrow(task.layout, self._rate(client, task))

    def _labels(self, local: Local) -> Mask | None:
        classes = local.task.classes
        return np.bincount(local.countable_targets(), minlength=classes) > 0 if self.own_labels and classes else None

    def _factors(self, local: Local) -> Vector:
        """Return 1 / rate for the hidden layers, 1 for the head."""
        rate = self._rate(local.client, local.task) if self.scaler else 1.0
        out = np.ones(local.layout.size, np.float32)
        for tensor in local.layout.tensors:
            if tensor.name.rpartition(".")[0] != local.layout.layers[-1]:
                out[tensor.slice] = 1 / rate
        return out


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
        chain = None if np.all(self._mask) else chain_or_none(flat.module)
        if chain is not None:  # else the whole net with zeros gives the same, only slower
            self._net = SlimNet(chain, plan(chain, flat.layout, self._mask, training=True), str(device))
            self._small = self._factors[self._net.index]


@lru_cache(maxsize=16)
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
