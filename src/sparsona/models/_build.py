"""Build a model from its spec, such as ``mlp:200``, for samples of a shape; and what all models are built with."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from sparsona.errors import InputError
from sparsona.files import check_memory
from sparsona.models import MODELS
from sparsona.registry import bind, split_spec

TEXT = "text-embedding"
BYTES_PER_WEIGHT = 12
"""Memory of a net: its weights, their gradients, and a vector of the weights."""


def build_model(spec: str, shape: tuple[int, ...], outputs: int, vocabulary: int = 0) -> nn.Module:
    """Build a net with weights from torch's generator; `vocabulary` is the number of tokens, or 0.

    >>> build_model("logistic", (4,), 2).fc1
    Linear(in_features=4, out_features=2, bias=True)
    """
    make = _maker(spec, shape, outputs, vocabulary)
    size, fix = _counted(make), "choose a smaller model, or fewer inputs"
    check_memory(BYTES_PER_WEIGHT * size, f"model {spec!r} has {size} weights here", fix)
    return make()


def weights_of(spec: str, shape: tuple[int, ...], outputs: int, vocabulary: int = 0) -> int:
    """Return the number of weights of a net, counted without allocating them.

    >>> weights_of("logistic", (4,), 2)
    10
    """
    return _counted(_maker(spec, shape, outputs, vocabulary))


def _counted(make: Callable[[], nn.Module]) -> int:
    """Count the weights on torch's meta device; 0 if the net cannot be built there."""
    state = torch.get_rng_state()
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in make().parameters())
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        return 0
    finally:
        torch.set_rng_state(state)


def _maker(spec: str, shape: tuple[int, ...], outputs: int, vocabulary: int) -> Callable[[], nn.Module]:
    """Return the function that builds the net of a spec."""
    name = split_spec(spec)[0]
    builder = MODELS.get(name)
    if vocabulary and name != TEXT:
        raise InputError(f"model {spec!r} does not read text: choose --model {TEXT}")
    if name == TEXT and not vocabulary:
        raise InputError(f"model {spec!r} reads words: declare them with --inputs tokens, or choose --model mlp")
    options = bind("model", spec, builder, skip=2)
    if vocabulary:
        options.setdefault("vocabulary", vocabulary)
    return partial(builder, shape, outputs, **options)


def image_shape(model: str, shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """Return `shape` as (channels, height, width); the error names the shapes that `model` takes.

    >>> image_shape("leaf-cnn", (1, 28, 28), smallest=16)
    (1, 28, 28)
    >>> image_shape("leaf-cnn", (1, 8, 8), smallest=16)
    Traceback (most recent call last):
    sparsona.errors.InputError: model 'leaf-cnn' needs images of at least 16x16, not 8x8; use mlp or logistic
    """
    if len(shape) != 3:
        message = f"model {model!r} needs images (channels, height, width), not samples of shape {shape}"
        raise InputError(f"{message}; use mlp or logistic")
    channels, height, width = shape
    if min(height, width) < smallest:
        message = f"model {model!r} needs images of at least {smallest}x{smallest}, not {height}x{width}"
        raise InputError(f"{message}; use mlp or logistic")
    return channels, height, width


def at_least_one(model: str, **numbers: int) -> None:
    """Refuse a width, a vocabulary or a number of outputs below one."""
    for name, number in numbers.items():
        if number < 1:
            raise InputError(f"model {model!r}: {name} must be at least 1, not {number}")


def named_layers(**layers: nn.Module) -> nn.Sequential:
    """Return a chain of layers that are called by these names."""
    return nn.Sequential(OrderedDict(layers))
