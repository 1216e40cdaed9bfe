"""A net as a chain of layers, each on the last one's output, read off its graph.

Chains can be made slim (:mod:`sparsona.training.slim`). Chains of linear layers alone can be trained by compiled code
(:mod:`sparsona.training.fused`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import fx, nn

from sparsona.errors import InputError
from sparsona.layout import Layout, base_of

LayerKind: TypeAlias = Literal[
    "conv", "linear", "relu", "tanh", "sigmoid", "max-pool", "avg-pool", "mean", "flatten", "dropout"
]


@dataclass(frozen=True)
class Layer:
    """One layer of a chain. `stride` and `padding` belong to a convolution, `window` and `stride` to a pool.

    Only layers with weights have a name.
    """

    kind: LayerKind
    name: str = ""
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    window: tuple[int, int] = (1, 1)
    rate: float = 0.0

    @property
    def has_weights(self) -> bool:
        """Return whether the layer has weights of its own."""
        return self.kind in ("conv", "linear")


Chain: TypeAlias = tuple[Layer, ...]

_known: WeakKeyDictionary[nn.Module, Chain | str] = WeakKeyDictionary()


def chain_of(module: nn.Module) -> Chain:
    """Return the chain of a module that can be made slim; raises `InputError` with the reason if it cannot.

    >>> net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    >>> [(layer.kind, layer.name) for layer in chain_of(net)]
    [('conv', '0'), ('relu', ''), ('flatten', ''), ('linear', '3')]
    """
    found = FROZEN if any(base_of(module)) else traced(module)
    if not isinstance(found, str):
        odd = next((layer.kind for layer in found if layer.kind in ("tanh", "sigmoid")), None)
        if odd is None and found[-1].has_weights:
            return found
        found = "it must end in a layer of weights" if odd is None else f"{odd} is no known layer"
    raise InputError(f"this net cannot be made smaller: {found}; use one of lenet-cifar, leaf-cnn, convnet2, mlp")


def chain_or_none(module: nn.Module) -> Chain | None:
    """The module as a chain, or None. A net that is no chain computes its zeros, too."""
    try:
        return chain_of(module)
    except InputError:
        return None


FROZEN = "some of its weights are frozen"
NONE, RELU, TANH, SIGMOID = range(4)
ACTIVATIONS = {"relu": RELU, "tanh": TANH, "sigmoid": SIGMOID}


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


def linear_chain(module: nn.Module) -> tuple[LinearLayer, ...] | str:
    """Return the layers of a chain of linear layers, or the reason why the module is not one.

    >>> linear_chain(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False)))
    (LinearLayer(weight=0, bias=12, outputs=3, inputs=4, activation=1), LinearLayer(weight=15, bias=-1, ...))
    >>> linear_chain(nn.Sequential(nn.Conv2d(1, 2, 3)))
    'it has a layer of kind conv'
    """
    if Layout.of_buffers(module).size:
        return "it has buffers (BatchNorm)"
    if any(base_of(module)):
        return FROZEN
    chain = traced(module)
    if isinstance(chain, str):
        return chain
    layout, out = Layout.of(module), list[LinearLayer]()
    tensors = {tensor.name: tensor for tensor in layout.tensors}
    for layer in chain:
        if layer.kind == "linear":
            weight, bias = tensors.pop(f"{layer.name}.weight"), tensors.pop(f"{layer.name}.bias", None)
            out.append(LinearLayer(weight.start, -1 if bias is None else bias.start, weight.shape[0], weight.shape[1]))
        elif layer.kind in ACTIVATIONS and out and out[-1].activation == NONE:
            out[-1] = replace(out[-1], activation=ACTIVATIONS[layer.kind])
        elif layer.kind != "flatten" or out:
            return f"it has a layer of kind {layer.kind}"
    return "not all of its weights are in the chain" if tensors else tuple(out)


def traced(module: nn.Module) -> Chain | str:
    """Return the module as a chain that uses each layer of weights once, or the reason why it is not one."""
    found = _known.get(module)
    if found is None:
        found = _known[module] = _trace(module)
    return found


def chained_nodes(module: nn.Module) -> Iterator[fx.Node]:
    """Yield the calls of a module that work on each other's results one after the other.

    Raises `ValueError` with the reason where a module is no such chain.
    """
    if any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules()):
        raise ValueError("its layers have hooks")
    try:
        before, *inner, output = fx.symbolic_trace(module).graph.nodes
    except Exception as error:  # the tracer raises whatever the module's code does
        raise ValueError(f"its code cannot be traced ({type(error).__name__})") from error
    for node in inner:
        if node.all_input_nodes != [before] or len(node.users) != 1:
            raise ValueError(f"{node.target} is not one of a chain of layers")
        yield node
        before = node
    if output.args != (before,):
        raise ValueError("it must use each layer once, one after the other")


def _trace(module: nn.Module) -> Chain | str:
    layers: list[Layer] = []
    try:
        for node in chained_nodes(module):
            name = str(node.target)
            layers += _layer(module.get_submodule(name), name) if node.op == "call_module" else _call(node)
    except ValueError as error:
        return str(error)
    weighted = [layer.name for layer in layers if layer.has_weights]
    if len(set(weighted)) != len(weighted) or not weighted:
        return "it must use each layer once, one after the other"
    return tuple(layers)


def _layer(layer: nn.Module, name: str) -> list[Layer]:
    """Return what a module adds to the chain; raises `ValueError` where it has no place there."""
    match layer:
        case nn.Conv2d() if layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros":
            if not isinstance(layer.padding, str):
                return [Layer("conv", name, _pair(layer.stride), _pair(layer.padding))]
        case nn.Linear():
            return [Layer("linear", name)]
        case nn.ReLU() | nn.Tanh() | nn.Sigmoid():
            return [Layer(_FUNCTIONS[type(layer).__name__.lower()])]
        case nn.MaxPool2d() if not (layer.ceil_mode or any(_pair(layer.padding))) and _pair(layer.dilation) == (1, 1):
            return [Layer("max-pool", window=_pair(layer.kernel_size), stride=_pair(layer.stride))]
        case nn.AvgPool2d() if _pair(layer.padding) == (0, 0) and not layer.ceil_mode and not layer.divisor_override:
            return [Layer("avg-pool", window=_pair(layer.kernel_size), stride=_pair(layer.stride))]
        case nn.Flatten() if layer.start_dim == 1 and layer.end_dim == -1:
            return [Layer("flatten")]
        case nn.Dropout():
            return [Layer("dropout", rate=layer.p)] if layer.p else []
        case nn.Identity():
            return []
    raise ValueError(f"{name} is a {type(layer).__name__}, which mixes or moves channels")


_FUNCTIONS: Mapping[Any, LayerKind] = {
    F.relu: "relu", torch.relu: "relu", "relu": "relu", "relu_": "relu",
    F.tanh: "tanh", torch.tanh: "tanh", "tanh": "tanh",
    F.sigmoid: "sigmoid", torch.sigmoid: "sigmoid", "sigmoid": "sigmoid",
}  # fmt: skip
_POOLS: Mapping[Any, LayerKind] = {F.max_pool2d: "max-pool", torch.max_pool2d: "max-pool", F.avg_pool2d: "avg-pool"}


def _call(node: fx.Node) -> list[Layer]:
    """Return what a function, or a method of a tensor, adds to the chain; raises as :func:`_layer` does."""
    target, given = node.target, list(node.args[1:])
    options = {k: v for k, v in node.kwargs.items() if v not in (None, False)}
    if target in _FUNCTIONS:
        return [Layer(_FUNCTIONS[target])]
    if target in _POOLS:
        window = _pair(given[0] if given else options.pop("kernel_size"))
        stride = _pair(given[1] if len(given) > 1 else options.pop("stride", window))
        neutral = {"padding": (0, (0, 0)), "dilation": (1, (1, 1)), "count_include_pad": (True,)}
        if len(given) <= 2 and all(v in neutral.get(k, ()) for k, v in options.items()):
            return [Layer(_POOLS[target], window=window, stride=stride)]
    if target in (torch.flatten, "flatten") and (given or list(options.values())) == [1]:
        return [Layer("flatten")]
    if target in (torch.mean, "mean") and (given or list(options.values())) in ([(2, 3)], [[2, 3]], [(-2, -1)]):
        return [Layer("mean")]
    raise ValueError(f"{getattr(target, '__name__', target)} is no known layer")


def _pair(value: Any) -> tuple[int, int]:
    one, other = value if isinstance(value, tuple | list) else (value, value)
    return operator.index(one), operator.index(other)
