"""A model with a shared and a personal part: y = A x + B z, where A and B choose coordinates."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from sparsona.errors import InputError
from sparsona.layout import Layout
from sparsona.message import IndexSet, Vector
from sparsona.registry import suggest

Kind: TypeAlias = Literal["personal", "split", "additive"]


@dataclass(frozen=True, eq=False)
class ComponentMixture:
    """Column j of A has its 1 at `shared[j]`, column j of B at `own[j]`. Each of the `size` coordinates is in one of
    them, or all are in both.

    >>> mixture = ComponentMixture(3, np.array([0, 1]), np.array([2]))
    >>> mixture.model(np.array([5, 6], np.float32), np.array([9], np.float32))
    array([5., 6., 9.], dtype=float32)
    """

    size: int
    shared: IndexSet
    own: IndexSet

    def model(self, x: Vector, z: Vector) -> Vector:
        """Return A x + B z."""
        out = np.zeros(self.size, np.float32)
        out[self.shared] = x
        out[self.own] += z
        return out

    def start(self, initial: Vector) -> tuple[Vector, Vector]:
        """Return x and z whose model is `initial`; a coordinate of both is in x, with 0 in z."""
        both = len(self.shared) + len(self.own) > self.size
        return initial[self.shared], initial[self.own] * np.float32(not both)


def mixture_of(kind: Kind, layout: Layout, own: str | float = "") -> ComponentMixture:
    """Return the mixture for a model of this `layout`.

    In a `split`, the personal part are the layers or tensors that `own` names (joined by +), or the last tensors whose
    share of all parameters is nearest to `own`; by default the last layer.

    >>> from torch import nn
    >>> layout = Layout.of(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2)))
    >>> mixture_of("split", layout).own, mixture_of("split", layout, own="0+1.bias").own
    (array([2, 3, 4, 5]), array([0, 1, 4, 5]))
    """
    size, every = layout.size, np.arange(layout.size)
    if kind != "split" and own != "":
        raise InputError(f"own={own!r} says what is personal in a layout that is split: choose layout=split too")
    if kind != "split":
        return ComponentMixture(size, every[:0] if kind == "personal" else every, every)
    mask = np.zeros(size, np.bool_)
    if not isinstance(own, str):
        starts = np.array([t.start for t in layout.tensors])
        mask[starts[np.argmin(np.abs(size - starts - own * size))] :] = True
    for name in () if not isinstance(own, str) else own.split("+") if own else layout.layers[-1:]:
        found = [t for t in layout.tensors if name in (t.name, t.name.rpartition(".")[0])]
        if not found:
            names = [t.name for t in layout.tensors]
            raise InputError(f"own={own!r}: the model has no layer or tensor {name!r}{suggest(name, names)}")
        for tensor in found:
            mask[tensor.slice] = True
    if mask.all() or not mask.any():
        which, instead = ("all", "personal") if mask.any() else ("none", "additive, or another method")
        raise InputError(f"{which} of the model would be personal: choose layout={instead}, or other layers with own")
    return ComponentMixture(size, np.setdiff1d(every, np.flatnonzero(mask)), np.flatnonzero(mask))
