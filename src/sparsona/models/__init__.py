"""The models. A model is a function from the input's shape and the number of outputs to a module."""

from collections.abc import Callable

from torch import nn

from sparsona.registry import Registry

MODELS: Registry[Callable[..., nn.Module]] = Registry("model", __name__)
