"""Modules that are a chain of linear layers, read off their graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from sparsona.layout import Layout

NONE, RELU, TANH, SIGMOID = range(4)
ACTIVATIONS: dict[Any, int] = {
    nn.ReLU: RELU, F.relu: RELU, torch.relu: RELU, "relu": RELU,
    nn.Tanh: TANH, F.tanh: TANH, torch.tanh: TANH, "tanh": TANH,
    nn.Sigmoid: SIGMOID, F.sigmoid: SIGMOID, torch.sigmoid: SIGMOID, "sigmoid": SIGMOID,
}  # fmt: skip


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer's place in the model's vector, and the activation that follows it.

    `weight` and `bias` are the places of their first entries; `bias` is -1 where there is none.
    """

    weight: int
    bias: int
    outputs: int
    inputs: int
    activation: int = NONE


def chain_of(module: nn.Module) -> tuple[LinearLayer, ...] | str:
    """The layers of a module that is a chain of linear layers, or the reason why it is none.

    >>> chain_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False)))
    (LinearLayer(weight=0, bias=12, outputs=3, inputs=4, activation=1), LinearLayer(weight=15, bias=-1, ...))
    >>> chain_of(nn.Conv2d(1, 2, 3))
    'Conv2d is no linear layer'
    """
    if Layout.of_buffers(module).size:
        return "it has buffers (BatchNorm)"
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return "some of its weights are frozen"
    leaves = [leaf for leaf in module.modules() if next(leaf.children(), None) is None]
    unfit = sorted({type(leaf).__name__ for leaf in leaves if type(leaf) not in LAYERS})
    if unfit:
        return f"{unfit[0]} is no linear layer"
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception:  # noqa: BLE001 - the tracer raises whatever the module's code does
        return "its forward cannot be traced"
    layers = _layers(graph, dict(module.named_modules()), Layout.of(module))
    return layers or "it is no chain of linear layers"


LAYERS: set[type] = {nn.Linear, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Flatten, nn.Identity}


def _layers(graph: fx.Graph, modules: Mapping[str, nn.Module], layout: Layout) -> tuple[LinearLayer, ...] | None:
    """The chain, None where there is none: each node takes the last one's result, each weight is used once."""
    layers: list[LinearLayer] = []
    used: list[str] = []
    previous: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "output":
            every = sorted(used) == sorted(tensor.name for tensor in layout.tensors)
            return tuple(layers) if node.args == (previous,) and every and layers else None
        first = node.op == "placeholder"
        follows = previous is not None and node.all_input_nodes == [previous] and node.args[0] is previous
        if (previous is not None) if first else not (follows and _append(node, modules, layout, layers, used)):
            return None
        previous = node
    return None


def _append(
    node: fx.Node, modules: Mapping[str, nn.Module], layout: Layout, layers: list[LinearLayer], used: list[str]
) -> bool:
    """Add what a node of the graph does to the chain; False where a chain has no place for it."""
    kind: Any = type(modules[str(node.target)]) if node.op == "call_module" else node.target
    if kind is nn.Linear:
        name = str(node.target)
        weight = layout[f"{name}.weight"]
        used.append(weight.name)
        bias = -1
        if modules[name].bias is not None:
            used.append(f"{name}.bias")
            bias = layout[f"{name}.bias"].slice.start
        layers.append(LinearLayer(weight.slice.start, bias, weight.shape[0], weight.shape[1]))
        return True
    if kind in ACTIVATIONS and len(node.args) == 1 and not node.kwargs.get("inplace"):
        if not layers or layers[-1].activation != NONE:
            return False
        last = layers.pop()
        layers.append(LinearLayer(last.weight, last.bias, last.outputs, last.inputs, ACTIVATIONS[kind]))
        return True
    return kind is nn.Identity or (not layers and _flattens(node, modules))


def _flattens(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a node turns each sample into one row."""
    if node.op == "call_module":
        flatten = modules[str(node.target)]
        return isinstance(flatten, nn.Flatten) and (flatten.start_dim, flatten.end_dim) == (1, -1)
    return node.target in ("flatten", torch.flatten) and node.args[1:] == (1,) and not node.kwargs
