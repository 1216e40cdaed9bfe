"""The parts of a model: layers that are shared or stay with the client, and two stages, the head and the base."""

import numpy as np

from sparsona.errors import InputError
from sparsona.layout import Layout, Tensor
from sparsona.message import Mask


def last_layers(layout: Layout, count: int) -> Mask:
    """Return the mask of the last `count` layers, buffers included; some layer must be left before them.

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


BASE, HEAD = "base", "head"


def stage_spans(layout: Layout) -> dict[str, list[slice]]:
    """Return the spans of the head, which is the last layer, and of the base; a net of one layer is all head.

    >>> from torch import nn
    >>> stage_spans(Layout.of(nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))))
    {'base': [slice(0, 2, None), slice(2, 4, None)], 'head': [slice(4, 6, None), slice(6, 7, None)]}
    """
    spans: dict[str, list[slice]] = {BASE: [], HEAD: []}
    for tensor in layout.tensors:
        spans[_stage_of(tensor, layout)].append(tensor.slice)
    return {stage: found for stage, found in spans.items() if found}


def _stage_of(tensor: Tensor, layout: Layout) -> str:
    return HEAD if tensor.name.rpartition(".")[0] == layout.layers[-1] else BASE


def whole_net(layout: Layout) -> list[slice]:
    """Return the spans of all parameters."""
    return [tensor.slice for tensor in layout.tensors]


def weight_tensors(layout: Layout, stage: str | None = None) -> list[Tensor]:
    """Return the weights of one stage or of all, without biases and other vectors."""
    found = [t for t in layout.tensors if stage is None or _stage_of(t, layout) == stage]
    return [t for t in found if len(t.shape) > 1] or found
