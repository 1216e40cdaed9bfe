"""Slim nets: rows of weights that are all zero are left out of the operators.

A row (a channel or a unit) whose weights are all zero outputs a constant: its bias. ReLUs and pools turn that into
another constant, which the next layer multiplies by its weights. The product is folded into the next layer's bias, and
the row is not computed. The outputs are those of the net with zeros, to the rounding of floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import Layout, Tensor
from sparsona.message import IndexSet, Mask, Vector
from sparsona.training.chain import Chain, Layer
from sparsona.training.vector import view_of


@dataclass(frozen=True, eq=False)
class SlimLayer:
    """A layer with weights: the rows that are computed, those that are constant, and the same for its input columns."""

    layer: Layer
    weight: Tensor
    bias: Tensor | None
    kept: IndexSet
    constant: IndexSet
    columns: IndexSet
    folded: IndexSet

    @property
    def row_size(self) -> int:
        """The numbers in one row of the weights."""
        return prod(self.weight.shape[1:])


SlimPlan = tuple[SlimLayer, ...]


def plan(chain: Chain, layout: Layout, mask: Mask, training: bool = False) -> SlimPlan:
    """Return the rows of each layer that must be computed if only the weights of `mask` are not zero.

    All rows of the last layer are computed. In training, so are rows before a dropout. So are rows whose constant would
    meet the zeros around a padded image.
    """
    tensors = {t.name: t for t in layout.tensors}
    layers = [i for i, layer in enumerate(chain) if layer.has_weights]
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
                raise InputError(f"layer {chain[i].name} does not take what {before.layer.name} gives")
            columns, folded = (_spread(part, pixels) for part in (before.kept, before.constant))
        before = SlimLayer(chain[i], weight, bias, np.flatnonzero(alive), np.flatnonzero(~alive), columns, folded)
        out.append(before)
    return tuple(out)


def _spread(channels: IndexSet, pixels: int) -> IndexSet:
    """Return the columns of a flattened image that belong to `channels`."""
    return (channels[:, None] * pixels + np.arange(pixels)).ravel()


class SlimNet:
    """A chain that computes only the rows of a plan.

    Its weights are the kept rows with all columns, and all biases, in one flat buffer as in
    :class:`~sparsona.training.vector.FlatModule`. Folded columns and constant biases have gradients, too.
    """

    def __init__(self, chain: Chain, rows: SlimPlan, device: str = "cpu") -> None:
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
        self._leaves = {slim.layer.name: self._leaf(slim) for slim in rows}
        index = [[torch.from_numpy(a).to(device) for a in (r.kept, r.constant, r.columns, r.folded)] for r in rows]
        self._index = dict(zip((slim.layer.name for slim in rows), index, strict=True))

    def _leaf(self, layer: SlimLayer) -> tuple[torch.Tensor, torch.Tensor | None]:
        weight = self._view(self._starts[layer.weight.name], (len(layer.kept), *layer.weight.shape[1:]))
        return weight, None if layer.bias is None else self._view(self._starts[layer.bias.name], layer.bias.shape)

    def _view(self, start: int, shape: tuple[int, ...]) -> torch.Tensor:
        place = slice(start, start + prod(shape))
        leaf = nn.Parameter(self.weights[place].view(shape))
        leaf.grad = self.gradient[place].view(shape)
        return leaf

    def offset(self, position: int) -> int:
        """The place in this buffer of the weight at `position` of the whole model; its row must be kept."""
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
        """The place of each number of this buffer in the whole model."""
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
        for layer in self.chain:
            if layer.has_weights:
                weight, bias, outgoing = self._operator(layer, constants)
                if layer.kind == "conv":
                    x = F.conv2d(x, weight, bias, layer.stride, layer.padding)
                else:
                    x = F.linear(x, weight, bias)
                constants = outgoing
            elif layer.kind == "relu":
                x = F.relu(x, inplace=x is not given)  # no layer before it needs its output in the backward pass
                constants = None if constants is None else F.relu(constants)
            else:
                x = F.dropout(x, layer.rate, training) if layer.kind == "dropout" else _module(layer)(x)
        return x

    def _operator(
        self, layer: Layer, constants: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """The small weight, the bias with the folded constants, and the constants that this layer outputs."""
        weight, bias = self._leaves[layer.name]
        kept, constant, columns, folded = self._index[layer.name]
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
        """The size of the small net for inference: its weights and biases, without the folded columns."""
        return sum(
            len(r.kept) * len(r.columns) * prod(r.weight.shape[2:]) + (0 if r.bias is None else len(r.kept))
            for r in self.rows
        )

    def tensors(self) -> dict[str, torch.Tensor]:
        """The small net's weights by name, constants folded into the biases."""
        out: dict[str, torch.Tensor] = {}
        constants: torch.Tensor | None = None
        with torch.no_grad():
            for layer in self.chain:
                if layer.has_weights:
                    weight, bias, constants = self._operator(layer, constants)
                    out[f"{layer.name}.weight"] = weight.detach().clone()
                    if bias is not None:
                        out[f"{layer.name}.bias"] = bias.detach().clone()
                elif layer.kind == "relu" and constants is not None:
                    constants = F.relu(constants)
        return out


def small_module(chain: Sequence[Layer], tensors: dict[str, torch.Tensor]) -> nn.Sequential:
    """A plain torch module of the small weights, named as in the whole net (dots become dashes)."""
    out = nn.Sequential()
    for number, layer in enumerate(chain):
        if layer.has_weights:
            weight, bias = tensors[f"{layer.name}.weight"], tensors.get(f"{layer.name}.bias")
            rows, columns, *window = weight.shape
            module: nn.Module = nn.Linear(columns, rows, bias=bias is not None)
            if layer.kind == "conv":
                height, width = map(int, window)
                module = nn.Conv2d(columns, rows, (height, width), layer.stride, layer.padding, bias=bias is not None)
            module.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
            out.add_module(layer.name.replace(".", "-"), module)
        else:
            out.add_module(f"{layer.kind}-{number}", _module(layer))
    return out.eval()


class Pixels(nn.Module):
    """The mean over all pixels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The mean over the pixels."""
        return x.mean((2, 3))


@lru_cache
def _module(layer: Layer) -> nn.Module:
    """The torch module of a layer without weights, which has no state of its own."""
    match layer.kind:
        case "relu":
            return nn.ReLU()
        case "max-pool":
            return nn.MaxPool2d(layer.window, layer.stride)
        case "avg-pool":
            return nn.AvgPool2d(layer.window, layer.stride)
        case "flatten":
            return nn.Flatten()
        case "dropout":
            return nn.Dropout(layer.rate)
        case "mean":
            return Pixels()
    raise InputError(f"a chain has no layer of kind {layer.kind!r}")
