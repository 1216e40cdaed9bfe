"""A model in two parts: some of its layers are shared, the others stay with the client."""

import numpy as np

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.message import Mask, Vector


def last_layers(layout: Layout, count: int) -> Mask:
    """Where the last `count` layers stand, buffers included; something must be left before them.

    >>> from torch import nn
    >>> last_layers(Layout.of(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2))), 1)
    array([False, False,  True,  True,  True,  True])
    """
    layers = layout.layers
    if not 0 < count < len(layers):
        if len(layers) == 1:
            raise InputError("only one layer is trained: this method shares some and keeps others; train more of them")
        raise InputError(
            f"the model has {len(layers)} layers: the last {count} cannot be set apart, take 1 to {len(layers) - 1}"
        )
    chosen = set(layers[-count:])
    out = np.zeros(layout.size, np.bool_)
    for tensor in layout.tensors:
        out[tensor.slice] = tensor.name.rpartition(".")[0] in chosen
    return out


def joined(where: Mask, inside: Vector, outside: Vector) -> Vector:
    """The vector that has `inside` where the mask is true and `outside` elsewhere.

    >>> joined(np.array([True, False, True]), np.array([1, 2], np.float32), np.array([9], np.float32))
    array([1., 9., 2.], dtype=float32)
    """
    out = np.empty(len(where), np.float32)
    out[where] = inside
    out[~where] = outside
    return out


def normalisation(layout: Layout) -> Mask:
    """Where normalisation layers stand: those whose weight has one dimension, the scale of each channel.

    >>> from torch import nn
    >>> normalisation(Layout.of(nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2)))).nonzero()[0]
    array([4, 5, 6, 7])
    """
    weights = {t.name.rpartition(".")[0]: t.shape for t in layout.tensors if t.name.rpartition(".")[2] == "weight"}
    out = np.zeros(layout.size, np.bool_)
    for tensor in layout.tensors:
        out[tensor.slice] = len(weights.get(tensor.name.rpartition(".")[0], (1, 1))) == 1
    return out
