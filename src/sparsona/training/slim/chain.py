"""A net as a chain of layers, each on the last one's output: the nets that can be made slim."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import fx, nn

from sparsona.errors import InputError

LayerKind: TypeAlias = Literal["conv", "linear", "relu", "max-pool", "avg-pool", "mean", "flatten", "dropout"]


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
        """Whether the layer has weights of its own."""
        return self.kind in ("conv", "linear")


Chain: TypeAlias = tuple[Layer, ...]

_known: WeakKeyDictionary[nn.Module, Chain] = WeakKeyDictionary()


def chain_of(module: nn.Module) -> Chain:
    """The module as a chain; an InputError says why it is none.

    >>> net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    >>> [(layer.kind, layer.name) for layer in chain_of(net)]
    [('conv', '0'), ('relu', ''), ('flatten', ''), ('linear', '3')]
    """
    found = _known.get(module)
    if found is None:
        found = _known[module] = _trace(module)
    return found


def chain_or_none(module: nn.Module) -> Chain | None:
    """The module as a chain, or None. A net that is no chain computes its zeros, too."""
    try:
        return chain_of(module)
    except InputError:
        return None


def _trace(module: nn.Module) -> Chain:
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception as error:  # noqa: BLE001 - the tracer raises whatever the module's code does
        raise _cannot(f"its code cannot be traced ({type(error).__name__})") from None
    layers: list[Layer] = []
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    before = next(node for node in graph.nodes if node.op == "placeholder")
    for node in nodes:
        if node.all_input_nodes != [before] or (node is not nodes[-1] and len(node.users) != 1):
            raise _cannot(f"{node.target} is not one of a chain of layers")
        name = str(node.target)
        layers += _layer(module.get_submodule(name), name) if node.op == "call_module" else [_call(node)]
        before = node
    weighted = [layer.name for layer in layers if layer.has_weights]
    if len(set(weighted)) != len(weighted) or not weighted or not layers[-1].has_weights:
        raise _cannot("it must end in a layer of weights, and use each layer once")
    return tuple(layers)


def _layer(layer: nn.Module, name: str) -> list[Layer]:
    match layer:
        case nn.Conv2d() if layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros":
            if not isinstance(layer.padding, str):
                return [Layer("conv", name, _pair(layer.stride), _pair(layer.padding))]
        case nn.Linear():
            return [Layer("linear", name)]
        case nn.ReLU():
            return [Layer("relu")]
        case nn.MaxPool2d() if (_pair(layer.padding), _pair(layer.dilation), layer.ceil_mode) == (
            (0, 0),
            (1, 1),
            False,
        ):
            return [Layer("max-pool", window=_pair(layer.kernel_size), stride=_pair(layer.stride))]
        case nn.AvgPool2d() if _pair(layer.padding) == (0, 0) and not layer.ceil_mode and not layer.divisor_override:
            return [Layer("avg-pool", window=_pair(layer.kernel_size), stride=_pair(layer.stride))]
        case nn.Flatten() if layer.start_dim == 1 and layer.end_dim == -1:
            return [Layer("flatten")]
        case nn.Dropout():
            return [Layer("dropout", rate=layer.p)] if layer.p else []
        case nn.Identity():
            return []
    raise _cannot(f"{name} is a {type(layer).__name__}, which mixes or moves channels")


_POOLS: Mapping[Any, LayerKind] = {F.max_pool2d: "max-pool", torch.max_pool2d: "max-pool", F.avg_pool2d: "avg-pool"}


def _call(node: fx.Node) -> Layer:
    """A function or a method of a tensor."""
    target, given = node.target, list(node.args[1:])
    options = {k: v for k, v in node.kwargs.items() if v not in (None, False)}
    if target in (F.relu, torch.relu, "relu", "relu_"):
        return Layer("relu")
    if target in _POOLS:
        window = _pair(given[0] if given else options.pop("kernel_size"))
        stride = _pair(given[1] if len(given) > 1 else options.pop("stride", window))
        neutral = {"padding": (0, (0, 0)), "dilation": (1, (1, 1)), "count_include_pad": (True,)}
        if len(given) <= 2 and all(v in neutral.get(k, ()) for k, v in options.items()):
            return Layer(_POOLS[target], window=window, stride=stride)
    if target in (torch.flatten, "flatten") and (given or list(options.values())) == [1]:
        return Layer("flatten")
    if target in (torch.mean, "mean") and (given or list(options.values())) in ([(2, 3)], [[2, 3]], [(-2, -1)]):
        return Layer("mean")
    raise _cannot(f"{getattr(target, '__name__', target)} is no known layer")


def _pair(value: Any) -> tuple[int, int]:
    one, other = value if isinstance(value, tuple | list) else (value, value)
    return operator.index(one), operator.index(other)


def _cannot(why: str) -> InputError:
    return InputError(f"this net cannot be made smaller: {why}; use one of lenet-cifar, leaf-cnn, convnet2, mlp")
