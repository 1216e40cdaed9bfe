"""The trained part of a net: layers named by `trainable`, and low-rank adapters added by `lora`.

LoRA (Hu et al., ICLR 2022) learns an update B A of rank r of a frozen weight. Nets of Hugging Face get the adapters of
`peft`; others get those of this file, which leave the names of the net's weights as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import torch
from torch import nn

from sparsona.base import checked_base, is_file, load_weights
from sparsona.chance import Chance
from sparsona.errors import InputError
from sparsona.layout import base_of

HEAD = "head"
MARK = "lora_"
"""Part of the names of adapters' parameters, as in peft."""
HALF = (torch.float16, torch.bfloat16)
Found = TypeVar("Found", bound=nn.Module)


@dataclass(frozen=True)
class Lora:
    """Adapters of `rank` on the layers that `targets` name; empty: on all but the head. The update is scaled by
    alpha / rank."""

    rank: int
    targets: tuple[str, ...] = ()
    alpha: float = 0.0

    @classmethod
    def of(cls, text: str) -> Lora:
        """Read ``rank=8,targets=query|value,alpha=16``, or a rank alone.

        >>> Lora.of("rank=8,targets=query|value"), Lora.of("2").alpha
        (Lora(rank=8, targets=('query', 'value'), alpha=8.0), 2.0)
        """
        parts = [f"rank={text}"] if text.strip().isdigit() else text.split(",")
        given = dict(part.strip().partition("=")[::2] for part in parts)
        try:
            rank = int(given.pop("rank", "8"))
            alpha = float(given.pop("alpha", rank))
        except ValueError:
            rank, alpha = 0, 0.0
        targets = tuple(name for name in given.pop("targets", "").split("|") if name)
        if given or rank < 1 or not alpha > 0:
            raise InputError(f"lora={text!r} is not understood: write rank=8, or rank=8,targets=query|value,alpha=16")
        return cls(rank, targets, alpha)


@dataclass(frozen=True)
class TrainedPart:
    """The settings `trainable`, `lora` and `base`: the trained part of a net, and the source of the rest."""

    trainable: tuple[str, ...] = ()
    lora: str = ""
    base: str = ""

    def of(self, module: Found, chance: Chance) -> Found:
        """Add adapters to the module, and freeze, load and check its base, in place."""
        adapt(module, self.trainable, self.lora, chance)
        if is_file(self.base):
            load_weights(module, self.base)
        else:
            checked_base(self.base, module)
        if self != ALL and any(tensor.dtype in HALF for _, tensor in base_of(module)):
            _convert(module)
        return module


ALL = TrainedPart()
"""The settings of a net whose `requires_grad` decides."""


def adapt(module: Found, trainable: Sequence[str], lora: str, chance: Chance) -> Found:
    """Freeze untrained parameters and add adapters, in place. Without both settings, `requires_grad` decides.

    With adapters alone, the head is trained beside them.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> _ = adapt(net, (), "rank=1", Chance(0))
    >>> [name for name, parameter in net.named_parameters() if parameter.requires_grad]
    ['0.lora_a.weight', '0.lora_b.weight', '2.weight', '2.bias']
    """
    if lora:
        wanted, head = Lora.of(lora), head_of(module)
        with chance.torch("adapters"):
            _add(module, wanted, head)
    if trainable or lora:
        _freeze(module, trainable or [HEAD])
    return module


def head_of(module: nn.Module) -> str:
    """Return the name of the net's head: the last child with parameters, or the head of an only child.

    >>> head_of(nn.Sequential(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), nn.ReLU())))
    '0.1'
    """
    owners = [(name, child) for name, child in module.named_children() if any(True for _ in child.parameters())]
    if not owners:
        return ""
    name, child = owners[-1]
    inner = head_of(child) if len(owners) == 1 else ""
    return f"{name}.{inner}" if inner else name


def _freeze(module: nn.Module, trainable: Sequence[str]) -> None:
    """Train the parameters that `trainable` names, and all adapters; freeze the others."""
    names = [name for name, _ in module.named_parameters()]
    trained = {name for name in names if MARK in name}
    for pattern in trainable:
        meant = head_of(module) if pattern == HEAD and not _named(names, HEAD) else pattern
        found = _named(names, meant)
        if not found:
            raise InputError(f"trainable: {pattern!r} matches no parameter; the model has {', '.join(_some(names))}")
        trained.update(found)
    for name, parameter in module.named_parameters():
        if name in trained and not parameter.is_floating_point():
            raise InputError(f"trainable: {name!r} is {parameter.dtype}, which cannot be trained: leave it frozen")
        parameter.requires_grad_(name in trained)
        if name in trained and parameter.dtype != torch.float32:
            parameter.data = parameter.data.float()


def _convert(module: nn.Module) -> None:
    """Let each layer convert its inputs to its own type, because only the base may have half precision."""
    for layer in module.modules():
        if any(parameter.is_floating_point() for parameter in layer.parameters(recurse=False)):
            layer.register_forward_pre_hook(_to_own_type)


def _to_own_type(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    own = next(one.dtype for one in layer.parameters(recurse=False) if one.is_floating_point())
    return tuple(one.to(own) if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in inputs)


def _named(names: list[str], pattern: str) -> list[str]:
    """Return the names that a pattern selects: its own, names below it, and file-name matches."""
    return [name for name in names if name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)]


def _some(names: list[str], most: int = 6) -> list[str]:
    return names if len(names) <= most else [*names[: most // 2], "...", *names[-most // 2 :]]


def _add(module: nn.Module, lora: Lora, head: str) -> None:
    foreign = any(kind.__module__.startswith("transformers.") for kind in type(module).__mro__)
    kinds = ("Linear", "Conv1D", "Conv2d") if foreign else tuple(KINDS)
    layers = {name: layer for name, layer in module.named_modules() if name and _kind(layer) in kinds}
    inside = [name for name, layer in layers.items() if _kind(layer) == "MultiheadAttention"]
    layers = {name: layer for name, layer in layers.items() if name.rpartition(".")[0] not in inside}
    chosen = [name for name in layers if not lora.targets and name != head and not name.startswith(f"{head}.")]
    for target in lora.targets:
        found = [name for name in layers if name == target or name.endswith(f".{target}") or fnmatchcase(name, target)]
        if not found:
            raise InputError(f"lora: the target {target!r} matches no layer; choose of {', '.join(_some([*layers]))}")
        chosen += [name for name in found if name not in chosen]
    if not chosen:
        raise InputError("lora: the model has no linear, convolution or attention layer besides its head to adapt")
    if foreign:
        _add_peft(module, lora, chosen, any(_kind(layers[name]) == "Conv1D" for name in chosen))
        return
    for name in chosen:
        layer: Any = layers[name]
        layer.lora_scale = lora.alpha / lora.rank
        KINDS[_kind(layer)](layer, lora, name)


def _kind(layer: nn.Module) -> str:
    kinds = (nn.Linear, nn.Conv2d, nn.MultiheadAttention)
    return next((kind.__name__ for kind in kinds if isinstance(layer, kind)), type(layer).__name__)


def _add_peft(module: nn.Module, lora: Lora, targets: list[str], transposed: bool) -> None:
    try:
        import peft
    except ImportError:
        raise InputError("lora on a Hugging Face net needs peft: pip install 'sparsona[adapters]'") from None
    config = peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, fan_in_fan_out=transposed, lora_dropout=0.0
    )
    peft.inject_adapter_in_model(config, module)


def _add_linear(layer: Any, lora: Lora, name: str) -> None:
    layer.lora_a, layer.lora_b = _pair(layer.in_features, layer.out_features, lora)
    layer.register_forward_hook(_add_update)


def _add_conv(layer: Any, lora: Lora, name: str) -> None:
    if layer.groups != 1:
        raise InputError(f"lora: {name!r} is a convolution of {layer.groups} groups: name other layers with targets=")
    places = {key: getattr(layer, key) for key in ("kernel_size", "stride", "padding", "dilation", "padding_mode")}
    layer.lora_a = nn.Conv2d(layer.in_channels, lora.rank, bias=False, **places)
    layer.lora_b = nn.Conv2d(lora.rank, layer.out_channels, 1, bias=False)
    nn.init.zeros_(layer.lora_b.weight)
    layer.register_forward_hook(_add_update)


def _add_update(layer: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
    """Add the adapter's output, which is float32, to that of a layer of any type."""
    update: torch.Tensor = layer.lora_b(layer.lora_a(inputs[0].float()))
    scaled: torch.Tensor = layer.lora_scale * update
    return output + scaled.to(output.dtype)


def _add_attention(layer: Any, lora: Lora, name: str) -> None:
    """Adapt the projections of torch's attention. It reads its weights itself, so a forward pass swaps them."""
    if layer.in_proj_weight is None:
        raise InputError(f"lora: {name!r} has keys or values of another size: name other layers with targets=")
    size = layer.embed_dim
    layer.lora_in_a, layer.lora_in_b = _pair(size, 3 * size, lora)
    layer.lora_out_a, layer.lora_out_b = _pair(size, size, lora)
    layer.__class__ = AdaptedAttention


class AdaptedAttention(nn.MultiheadAttention):
    """Torch's attention with adapters of its four projections."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Attend with the adapted weights."""
        with self._swapped(self, "in_proj_weight", "in"), self._swapped(self.out_proj, "weight", "out"):
            return super().forward(*args, **kwargs)

    @contextmanager
    def _swapped(self, owner: Any, name: str, which: str) -> Iterator[None]:
        held = owner._parameters
        a, b = getattr(self, f"lora_{which}_a").weight, getattr(self, f"lora_{which}_b").weight
        weight = held[name] + (self.lora_scale * (b @ a)).to(held[name].dtype)
        owner._parameters = {**held, name: weight}
        try:
            yield
        finally:
            owner._parameters = held


def _pair(inputs: int, outputs: int, lora: Lora) -> tuple[nn.Linear, nn.Linear]:
    a, b = nn.Linear(inputs, lora.rank, bias=False), nn.Linear(lora.rank, outputs, bias=False)
    nn.init.zeros_(b.weight)
    return a, b


KINDS: dict[str, Callable[[Any, Lora, str], None]] = {
    "Linear": _add_linear,
    "Conv2d": _add_conv,
    "MultiheadAttention": _add_attention,
}
