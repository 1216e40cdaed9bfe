"""A model in two stages: its head, which is the last layer, and its base, which is all before it."""

from collections.abc import Mapping, Sequence

from sparsona.layout import Layout, Tensor

BASE, HEAD = "base", "head"


def stage_spans(layout: Layout) -> dict[str, list[slice]]:
    """Where the parameters of each stage stand; a net of one layer is all head.

    >>> from torch import nn
    >>> stage_spans(Layout.of(nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))))
    {'base': [slice(0, 2, None), slice(2, 4, None)], 'head': [slice(4, 6, None), slice(6, 7, None)]}
    """
    spans: dict[str, list[slice]] = {BASE: [], HEAD: []}
    for tensor in layout.tensors:
        spans[stage_of(tensor, layout)].append(tensor.slice)
    return {stage: found for stage, found in spans.items() if found}


def whole_net(layout: Layout) -> list[slice]:
    """Where the parameters of all stages stand."""
    return [tensor.slice for tensor in layout.tensors]


def stage_of(tensor: Tensor, layout: Layout) -> str:
    """The stage that a tensor belongs to: the head is the last layer, the base all others."""
    return HEAD if tensor.name.rpartition(".")[0] == layout.layers[-1] else BASE


def weight_tensors(layout: Layout, stage: str | None = None) -> list[Tensor]:
    """The weights of one stage or of all, without biases and other vectors."""
    found = [t for t in layout.tensors if stage is None or stage_of(t, layout) == stage]
    return [t for t in found if len(t.shape) > 1] or found


def weighted_slices(tensors: Sequence[Tensor], weights: Mapping[int, tuple[float, ...]]) -> list[tuple[float, slice]]:
    """Pair each tensor's slice with its weight: `weights` by the number of tensors, equal ones for other numbers."""
    shares = weights.get(len(tensors), (1 / len(tensors),) * len(tensors))
    return [(share, tensor.slice) for share, tensor in zip(shares, tensors, strict=True)]
