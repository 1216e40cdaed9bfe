"""Really smaller nets: rows of weights that are all zero are left out of the operators, exactly.

A row (a channel or a unit) without weights gives the same number whatever comes in: its bias. ReLUs and pools make
another constant of it, and the next layer adds that times its weights: so it goes into the next layer's bias, and the
row is computed no more. What comes out is what the net with zeros gives, to the rounding of floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import Layout, Tensor
from sparsona.message import IndexSet, Mask, Vector
from sparsona.training.slim.chain import Chain, Layer, chain_of, chain_or_none
from sparsona.training.vector import view_of

__all__ = ["Chain", "Layer", "Plan", "SlimLayer", "SlimNet", "chain_of", "chain_or_none", "plan", "small_module"]


@dataclass(frozen=True, eq=False)
class SlimLayer:
    """One layer: the rows that are computed, those that are constant, and the same for its input columns."""

    step: Layer
    weight: Tensor
    bias: Tensor | None
    kept: IndexSet
    constant: IndexSet
    columns: IndexSet
    folded: IndexSet

    @property
    def row_size(self) -> int:
        return prod(self.weight.shape[1:])


Plan = tuple[SlimLayer, ...]


def plan(chain: Chain, layout: Layout, mask: Mask, training: bool = False) -> Plan:
    """Which rows of each layer must be computed when only the weights of `mask` are not zero.

    All rows of the last layer are; so are, in training, those before a dropout, and those whose constant would meet
    the zeros around a padded image.
    """
    tensors = {t.name: t for t in layout.parameters}
    layers = [i for i, step in enumerate(chain) if step.has_weights]
    out: list[SlimLayer] = []
    before: SlimLayer | None = None
    for i, following in zip(layers, [*layers[1:], None], strict=True):
        weight, bias = tensors[f"{chain[i].name}.weight"], tensors.get(f"{chain[i].name}.bias")
        rows = weight.shape[0]
        alive: Mask = np.any(mask[weight.slice].reshape(rows, -1), axis=1)
        if following is None or (training and any(s.kind == "dropout" for s in chain[i:following])):
            alive[:] = True
        elif any(chain[following].padding) and bias is not None:
            alive |= mask[bias.slice]
        if not alive.any():
            alive[0] = True
        channels = weight.shape[1]
        if before is None:
            columns, folded = np.arange(channels), np.zeros(0, np.int64)
        else:
            pixels, rest = divmod(channels, before.weight.shape[0])
            if rest:
                raise InputError(f"layer {chain[i].name} does not take what {before.step.name} gives")
            columns, folded = (_spread(part, pixels) for part in (before.kept, before.constant))
        before = SlimLayer(chain[i], weight, bias, np.flatnonzero(alive), np.flatnonzero(~alive), columns, folded)
        out.append(before)
    return tuple(out)


def _spread(channels: IndexSet, pixels: int) -> IndexSet:
    """The columns of a flattened image that come from `channels`."""
    return (channels[:, None] * pixels + np.arange(pixels)).ravel()


class SlimNet:
    """A chain that computes only the rows of a plan. Its weights are the kept rows, all columns, and all biases:
    one flat buffer, as of :class:`~sparsona.training.vector.Flat`, so that gradients of what is folded come out."""

    def __init__(self, chain: Chain, rows: Plan, device: str = "cpu") -> None:
        self.chain = chain
        self.rows = rows
        self._starts: dict[str, int] = {}
        size = 0
        for layer in rows:
            self._starts[layer.weight.name] = size
            size += len(layer.kept) * layer.row_size
            if layer.bias is not None:
                self._starts[layer.bias.name] = size
                size += layer.bias.size
        self.weights = torch.zeros(size, device=device)
        self.gradient = torch.zeros(size, device=device)
        self._leaves = {layer.step.name: self._leaf(layer) for layer in rows}
        index = [[torch.from_numpy(a).to(device) for a in (r.kept, r.constant, r.columns, r.folded)] for r in rows]
        self._index = dict(zip((layer.step.name for layer in rows), index, strict=True))

    def _leaf(self, layer: SlimLayer) -> tuple[torch.Tensor, torch.Tensor | None]:
        shape = (len(layer.kept), *layer.weight.shape[1:])
        weight = self._view(self._starts[layer.weight.name], shape)
        return weight, None if layer.bias is None else self._view(self._starts[layer.bias.name], layer.bias.shape)

    def _view(self, start: int, shape: tuple[int, ...]) -> torch.Tensor:
        place = slice(start, start + prod(shape))
        leaf = nn.Parameter(self.weights[place].view(shape))
        leaf.grad = self.gradient[place].view(shape)
        return leaf

    def offset(self, position: int) -> int:
        """Where the weight at `position` of the whole model stands in this buffer; its row must be kept."""
        for layer in self.rows:
            if layer.weight.start <= position < layer.weight.stop:
                row, column = divmod(position - layer.weight.start, layer.row_size)
                found = int(np.searchsorted(layer.kept, row))
                if found == len(layer.kept) or layer.kept[found] != row:
                    raise InputError(f"row {row} of {layer.weight.name} is not computed")
                return self._starts[layer.weight.name] + found * layer.row_size + column
            if layer.bias is not None and layer.bias.start <= position < layer.bias.stop:
                return self._starts[layer.bias.name] + position - layer.bias.start
        raise InputError(f"position {position} is in no layer of the chain")

    @cached_property
    def index(self) -> torch.Tensor:
        """Where each number of this buffer stands in the whole model."""
        places = []
        for layer in self.rows:
            starts = layer.weight.start + layer.kept * layer.row_size
            places.append((starts[:, None] + np.arange(layer.row_size)).ravel())
            if layer.bias is not None:
                places.append(np.arange(layer.bias.start, layer.bias.stop))
        return torch.from_numpy(np.concatenate(places)).to(self.weights.device)

    def load(self, vector: Vector) -> None:
        """Take the kept rows and the biases of a whole model."""
        with torch.no_grad():
            self.weights.copy_(view_of(vector)[self.index.cpu()])

    def __call__(self, x: torch.Tensor, training: bool = False) -> torch.Tensor:
        constants: torch.Tensor | None = None
        given = x
        for step in self.chain:
            if step.has_weights:
                weight, bias, outgoing = self._operator(step, constants)
                if step.kind == "conv":
                    x = F.conv2d(x, weight, bias, step.stride, step.padding)
                else:
                    x = F.linear(x, weight, bias)
                constants = outgoing
            elif step.kind == "relu":
                x = F.relu(x, inplace=x is not given)  # no layer before it needs its own output to go back
                constants = None if constants is None else F.relu(constants)
            else:
                x = _between(step, x, training)
        return x

    def _operator(
        self, step: Layer, constants: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """The small weight, its bias with what is folded into it, and the constants that this layer gives."""
        weight, bias = self._leaves[step.name]
        kept, constant, columns, folded = self._index[step.name]
        outgoing = None if bias is None or not len(constant) else bias[constant]
        if bias is not None and len(constant):
            bias = bias[kept]
        if len(folded):
            if constants is not None:
                pixels = len(folded) // len(constants)
                lost = weight[:, folded].flatten(2).sum(2) if weight.ndim > 2 else weight[:, folded]
                extra = lost @ (constants.repeat_interleave(pixels) if pixels > 1 else constants)
                bias = extra if bias is None else bias + extra
            weight = weight.index_select(1, columns)
        return weight, bias, outgoing

    def numbers(self) -> int:
        """The numbers that inference needs: the small weights, without the columns that are folded."""
        return sum(
            len(r.kept) * len(r.columns) * prod(r.weight.shape[2:]) + (0 if r.bias is None else len(r.kept))
            for r in self.rows
        )

    def tensors(self) -> dict[str, torch.Tensor]:
        """The small net's weights by name, constants folded into the biases."""
        out: dict[str, torch.Tensor] = {}
        constants: torch.Tensor | None = None
        with torch.no_grad():
            for step in self.chain:
                if step.has_weights:
                    weight, bias, constants = self._operator(step, constants)
                    out[f"{step.name}.weight"] = weight.detach().clone()
                    if bias is not None:
                        out[f"{step.name}.bias"] = bias.detach().clone()
                elif step.kind == "relu" and constants is not None:
                    constants = F.relu(constants)
        return out


def _between(step: Layer, x: torch.Tensor, training: bool) -> torch.Tensor:
    match step.kind:
        case "max-pool":
            return F.max_pool2d(x, step.window, step.stride)
        case "avg-pool":
            return F.avg_pool2d(x, step.window, step.stride)
        case "mean":
            return x.mean((2, 3))
        case "flatten":
            return x.flatten(1)
        case "dropout":
            return F.dropout(x, step.rate, training)
    raise InputError(f"a chain has no step {step.kind!r}")


def small_module(chain: Sequence[Layer], tensors: dict[str, torch.Tensor]) -> nn.Sequential:
    """A plain torch module of the small weights, named as in the whole net (dots become dashes)."""
    out = nn.Sequential()
    for number, step in enumerate(chain):
        layer: nn.Module
        if step.has_weights:
            weight, bias = tensors[f"{step.name}.weight"], tensors.get(f"{step.name}.bias")
            rows, columns = weight.shape[:2]
            if step.kind == "conv":
                window = (int(weight.shape[2]), int(weight.shape[3]))
                layer = nn.Conv2d(columns, rows, window, step.stride, step.padding, bias=bias is not None)
            else:
                layer = nn.Linear(columns, rows, bias=bias is not None)
            layer.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
        else:
            layer = _module(step)
        out.add_module(step.name.replace(".", "-") if step.has_weights else f"{step.kind}-{number}", layer)
    return out.eval()


class Pixels(nn.Module):
    """The mean over all pixels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


def _module(step: Layer) -> nn.Module:
    match step.kind:
        case "relu":
            return nn.ReLU()
        case "max-pool":
            return nn.MaxPool2d(step.window, step.stride)
        case "avg-pool":
            return nn.AvgPool2d(step.window, step.stride)
        case "flatten":
            return nn.Flatten()
        case "dropout":
            return nn.Dropout(step.rate)
    return Pixels()
