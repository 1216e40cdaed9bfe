"""Ghost clipping: the sum of examples' clipped gradients, from one forward and one backward pass of the batch.

The gradient of one example by a layer's weights is a product of what the layer gets (`inputs`) and of the loss's
derivative by what it gives (`errors`). Its norm follows from these, and so does the sum over all examples, each scaled
by its own factor: no gradient of an example is stored where that is cheaper (Li and others 2022; both from one backward
pass: "book-keeping", Bu and others 2023; a gradient is stored where a layer is used at many places: mixed ghost
clipping, Bu, Mao, Xu 2022).

The clip must hold for whatever weights a server sends. So norms are summed in double precision, or of numbers scaled to
at most 1, and rounded upwards by more than single precision can lose. An example with numbers beyond `LARGEST` counts
as zero: the scale of its gradient would have too few bits, and rounding could double what it adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from sparsona.errors import InputError
from sparsona.layout import Layout, parameters_of
from sparsona.training.chain import chained_nodes
from sparsona.training.step import LARGEST, clipping_scale, norms_of

PIECE = 64
"""The most examples that are looked at together."""
LOST = 2.0**-23
"""The share of a product of norms that one addition in single precision may lose where terms cancel each other."""
TINY = 1e-37
"""Largest error of a square below the smallest normal number of single precision."""

Losses: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""The loss of each example, given the outputs."""


class GradientPart(Protocol):
    """The gradients of a batch's examples by one tensor of weights."""

    def squares(self) -> torch.Tensor:
        """The squared norm of each, rounded upwards, in double precision."""

    def total(self, scale: torch.Tensor) -> torch.Tensor:
        """Return the sum of the scaled gradients as a flat tensor. A gradient that is not finite has the scale 0."""


@dataclass(frozen=True)
class StoredGradients:
    """Stored gradients, one row per example."""

    rows: torch.Tensor
    mask: torch.Tensor | None

    def squares(self) -> torch.Tensor:
        """Return the squared norm per example."""
        return norms_of(self.rows if self.mask is None else self.rows * self.mask).square()

    def total(self, scale: torch.Tensor) -> torch.Tensor:
        """Return the scaled sum over the examples."""
        return scale @ _cleared(self.rows, scale)


@dataclass(frozen=True)
class OuterProducts:
    """Gradients of a matrix: the sum over places of errors (examples, outputs, places) times inputs (..., places)."""

    errors: torch.Tensor
    inputs: torch.Tensor
    mask: torch.Tensor | None

    def squares(self) -> torch.Tensor:
        """Return the squared norm per example."""
        if self.mask is not None:
            return self._masked()
        errors, inputs = self.errors.double(), self.inputs.double()
        sizes = errors.square().sum((1, 2)), inputs.square().sum((1, 2))
        most = torch.where(torch.maximum(*sizes) <= LARGEST**2, sizes[0] * sizes[1], torch.inf)
        if errors.shape[2] == 1:
            return most
        products = (errors.transpose(1, 2) @ errors) * (inputs.transpose(1, 2) @ inputs)
        return _upwards(products.sum((1, 2)), most, len(errors) * errors.shape[2])

    def _masked(self) -> torch.Tensor:
        assert self.mask is not None
        largest = [one.abs().amax((1, 2)).clamp(min=1e-38) for one in (self.errors, self.inputs)]
        errors, inputs = (
            (one.squeeze(2) / most[:, None]).square()
            for one, most in zip((self.errors, self.inputs), largest, strict=True)
        )
        within = ((errors @ self.mask.view(errors.shape[1], -1)) * inputs).double().sum(1)
        squares = (within + self.mask.numel() * TINY) * (largest[0].double() * largest[1].double()).square()
        return torch.where(torch.maximum(*largest) <= LARGEST, squares, torch.inf)

    def total(self, scale: torch.Tensor) -> torch.Tensor:
        """Return the scaled sum over the examples."""
        errors, inputs = (_cleared(one, scale) for one in (self.errors, self.inputs))
        scaled = (errors * scale[:, None, None]).transpose(0, 1).flatten(1)
        return (scaled @ inputs.transpose(1, 2).flatten(0, 1)).flatten()


@dataclass(frozen=True)
class TableGradients:
    """Gradients of a table: the errors (examples, places, width) of the entry at each place."""

    errors: torch.Tensor
    entries: torch.Tensor
    size: int

    def squares(self) -> torch.Tensor:
        """Return the squared norm per example."""
        errors = self.errors.double()
        same = self.entries[:, :, None] == self.entries[:, None, :]
        products = (errors @ errors.transpose(1, 2)) * same
        places = self.entries.shape[1]
        return _upwards(products.sum((1, 2)), errors.square().sum((1, 2)) * places, len(errors) * places)

    def total(self, scale: torch.Tensor) -> torch.Tensor:
        """Return the scaled sum over the examples."""
        errors = _cleared(self.errors, scale) * scale[:, None, None]
        out = torch.zeros(self.size, errors.shape[2], device=errors.device)
        return out.index_add_(0, self.entries.flatten(), errors.flatten(0, 1)).flatten()


def _upwards(squares: torch.Tensor, most: torch.Tensor, terms: int) -> torch.Tensor:
    """Squared norms, and what single precision may lose of a sum of `terms` terms of norm at most sqrt(`most`)."""
    return (squares.clamp(min=0).sqrt() + LOST * terms * most.sqrt()).square()


def _cleared(rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the rows with zeros where the scale is 0, since 0 times NaN or infinity is NaN."""
    kept = scale > 0
    return rows if kept.all() else torch.where(kept.view(-1, *(1,) * (rows.ndim - 1)), rows, 0.0)


@dataclass(frozen=True)
class SeenLayer:
    """A layer in a forward pass: its inputs, and the tensor whose gradient is that of its outputs."""

    name: str
    layer: nn.Module
    inputs: torch.Tensor
    version: int
    edge: GradientEdge


def clipped_sum(
    module: nn.Module, layout: Layout, inputs: torch.Tensor, losses: Losses, most: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """The sum of the examples' gradients within the mask, each scaled to norm at most `most`.

    The module must have no :func:`reason_against`.
    """
    seen: list[SeenLayer] = []

    def note(name: str, layer: nn.Module, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        seen.append(SeenLayer(name, layer, given[0].detach(), given[0]._version, get_gradient_edge(out)))

    hooks = [layer.register_forward_hook(partial(note, name)) for name, layer in trained_layers(module).items()]
    try:
        with torch.enable_grad():
            loss = losses(module(inputs)).sum()
            errors = torch.autograd.grad(loss, [one.edge for one in seen])
    finally:
        for hook in hooks:
            hook.remove()
    places = {tensor.name: tensor.slice for tensor in layout.tensors}
    parts: dict[str, GradientPart] = {}
    for one, error in zip(seen, errors, strict=True):
        if one.inputs._version != one.version:
            raise InputError(f"layer {one.name!r}: the model writes over what it gets, which privacy needs")
        trained = {f"{one.name}.{leaf}": leaf for leaf, p in one.layer.named_parameters() if p.requires_grad}
        for name, leaf in trained.items():
            parts[name] = part_of(one.layer, leaf, one.inputs, error, None if mask is None else mask[places[name]])
    scale = clipping_scale(torch.stack([part.squares() for part in parts.values()]).sum(0).sqrt(), most)
    out = torch.zeros(layout.size, device=inputs.device)
    for name, part in parts.items():
        out[places[name]] = part.total(scale)
    return out if mask is None else out * mask


def part_of(
    layer: nn.Module, leaf: str, inputs: torch.Tensor, errors: torch.Tensor, mask: torch.Tensor | None
) -> GradientPart:
    """Return the gradients by a layer's weight or bias."""
    match layer:
        case nn.Embedding():
            if layer.padding_idx is not None:
                errors = errors * (inputs != layer.padding_idx)[..., None]
            count, size, width = len(inputs), layer.num_embeddings, layer.embedding_dim
            errors, entries = errors.reshape(count, -1, width), inputs.reshape(count, -1)
            if mask is None:
                return TableGradients(errors, entries, size)
            rows = errors.new_zeros(count, size, width)
            return StoredGradients(rows.scatter_add_(1, entries[..., None].expand_as(errors), errors).flatten(1), mask)
        case nn.GroupNorm():
            normed = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
            return StoredGradients((errors * normed if leaf == "weight" else errors).flatten(2).sum(2), mask)
        case nn.LayerNorm():
            normed = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
            rows = errors * normed if leaf == "weight" else errors
            return StoredGradients(rows.reshape(len(rows), -1, math.prod(layer.normalized_shape)).sum(1), mask)
        case nn.Conv2d():
            errors = errors.flatten(2)
            if leaf == "weight":
                how = layer.dilation, layer.padding, layer.stride
                inputs = F.unfold(inputs, layer.kernel_size, *how)  # type: ignore[arg-type]
        case _:
            errors, inputs = (one.reshape(len(one), -1, one.shape[-1]).transpose(1, 2) for one in (errors, inputs))
    if leaf == "bias":
        return StoredGradients(errors.sum(2), mask)
    outputs, places, width = errors.shape[1], errors.shape[2], inputs.shape[1]
    few = places == 1 if mask is not None else places**2 * (outputs + width) <= 2 * outputs * width
    return (
        OuterProducts(errors, inputs, mask)
        if few
        else StoredGradients((errors @ inputs.transpose(1, 2)).flatten(1), mask)
    )


def trained_layers(module: nn.Module) -> dict[str, nn.Module]:
    """The layers with weights that are trained, by name."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
    }


def reason_against(module: nn.Module) -> str:
    """Return why this module mixes the examples of a batch; empty if it does not.

    It must be a chain of layers and functions that are known to treat each example by itself. What a layer makes of
    weights must be known, too, and each weight be used once.

    >>> reason_against(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    ''
    >>> reason_against(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)))
    '1 is a BatchNorm1d'
    """
    if type(module) in KNOWN:
        return "it is a single layer"
    called: list[nn.Module] = []
    try:
        for node in chained_nodes(module):
            if node.op == "call_module":
                called.append(module.get_submodule(str(node.target)))
                if not _is_known(called[-1]):
                    return f"{node.target} is a {type(called[-1]).__name__}"
            elif not _is_alone(node):
                return f"{getattr(node.target, '__name__', node.target)} may mix examples"
    except ValueError as error:
        return str(error)
    used = [id(parameter) for layer in called for parameter in layer.parameters()]
    if len(set(used)) != len(used):
        return "a layer is used twice"
    return "" if {id(parameter) for _, parameter in parameters_of(module)} <= set(used) else "weights are in no layer"


KNOWN: frozenset[type[nn.Module]] = frozenset({
    nn.Linear, nn.Conv2d, nn.GroupNorm, nn.LayerNorm, nn.Embedding,
    nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU,
    nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Dropout, nn.Identity,
})  # fmt: skip


def _is_known(layer: nn.Module) -> bool:
    match layer:
        case nn.Conv2d():
            plain = layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        case nn.Embedding():
            plain = layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
        case nn.Flatten():
            plain = layer.start_dim == 1
        case _:
            plain = True
    return plain and type(layer) in KNOWN


_EACH: frozenset[Any] = frozenset({
    F.relu, torch.relu, "relu", "relu_", F.tanh, torch.tanh, "tanh", F.sigmoid, torch.sigmoid, "sigmoid", F.gelu,
    F.silu, F.leaky_relu, F.max_pool2d, torch.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, "long", "float",
})  # fmt: skip
"""Functions that treat each example by itself, whatever else they are given."""


def _is_alone(node: fx.Node) -> bool:
    """Return whether a function treats each example by itself: the first dimension counts them."""
    given = [*node.args[1:], *node.kwargs.values()]
    if node.target in _EACH:
        return True
    if node.target in (torch.flatten, "flatten"):
        return given == [1]
    if node.target in (torch.mean, "mean"):
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else ())
        dims = dim if isinstance(dim, Sequence) else (dim,)
        return bool(dims) and all(isinstance(one, int) and one > 0 for one in dims)
    return False
