"""The base of a model: the frozen weights, held once per process and known by their hash."""

import copy
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from sparsona.errors import InputError
from sparsona.layout import base_of

HASH = re.compile(r"[0-9a-f]{64}")
LAYER = ".base_layer."
"""peft puts this into the name of a weight that it adapts."""


def is_file(base: str) -> bool:
    """True if the setting `base` names a file; it may also be a hash, or empty."""
    return bool(base) and HASH.fullmatch(base) is None


def load_weights(module: nn.Module, path: str) -> None:
    """Load the tensors of a .safetensors file, which must hold the whole base.

    The base gets the file's types; trained tensors stay float32. A trained tensor that the file lacks in this shape,
    such as a head for other classes, keeps its values.
    """
    places = module.state_dict(keep_vars=True)
    frozen, found = {id(tensor): name for name, tensor in base_of(module)}, set[int]()
    try:
        with safe_open(path, framework="pt") as file:
            held = set(file.keys())
            for name, place in places.items():
                key = name if name in held else name.replace(LAYER, ".")
                if key in held and tuple(file.get_slice(key).get_shape()) == tuple(place.shape):
                    tensor = file.get_tensor(key)
                    place.data = tensor if id(place) in frozen else tensor.to(place.dtype)
                    found.add(id(place))
    except (OSError, SafetensorError) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else "it is no whole safetensors file"
        raise InputError(f"cannot read the base {path}: {why}") from None
    known = {id(place) for place in places.values()}
    missing = next((name for one, name in frozen.items() if one in known and one not in found), "")
    if missing:
        name = missing.replace(LAYER, ".")
        raise InputError(f"the base {path} has no {name!r} of this model's shape: give the file of its architecture")


def checked_base(named: str, module: nn.Module) -> str:
    """Return the hash of the module's base; raises `InputError` if it is not the `named` one."""
    found = base_hash(module)
    if named and named != found:
        had = f"this is {found[:12]}" if found else "the model has none"
        raise InputError(f"the base {named[:12]} is needed, {had}: give it with --base FILE, or in Python with model=")
    return found


def base_hash(module: nn.Module) -> str:
    """Return the sha256 of the module's base by name, type, shape and content; empty if nothing is frozen.

    Buffers outside of the state dict are left out, because the architecture determines them.
    """
    known, found = module.state_dict(keep_vars=True), hashlib.sha256()
    names = {name: tensor for name, tensor in base_of(module) if name in known}
    for name, tensor in sorted(names.items()):
        found.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        found.update(raw_bytes(tensor).data)
    return found.hexdigest() if names else ""


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of the module that shares the memory of its base."""
    return copy.deepcopy(module, {id(tensor): _view(tensor) for _, tensor in base_of(module)})


def raw_bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Return the content of a tensor as bytes, without a copy if it is contiguous and on the CPU."""
    found: npt.NDArray[np.uint8] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return found


def still_layers(module: nn.Module) -> Iterator[nn.Module]:
    """Return the normalisation layers with frozen statistics, which must stay in evaluation mode."""
    owners = {name.rpartition(".")[0] for name, _ in base_of(module)}
    for name, layer in module.named_modules():
        if name in owners and isinstance(layer, nn.modules.batchnorm._NormBase):
            yield layer


def _view(tensor: torch.Tensor) -> Any:
    """Return a tensor on the same memory, which can move to another device without the original."""
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(tensor.detach(), requires_grad=False)
    return tensor.detach()
