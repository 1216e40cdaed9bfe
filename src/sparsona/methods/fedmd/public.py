"""Samples that everyone has: a data set by name, or noise in its place."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from sparsona.chance import Chance
from sparsona.data import load
from sparsona.data.dataset import Array
from sparsona.errors import InputError

SYNTHETIC = "synthetic"
"""Not a data set: noise of the shape of the clients' samples, the same for all."""


def public_samples(name: str, like: torch.Tensor, count: int, chance: Chance) -> Array:
    """The inputs of the data set `name`, raw and in the units of `like`; of `synthetic` so many as asked for.

    >>> public_samples("synthetic", torch.zeros(1, 1, 2, 2, dtype=torch.uint8), 3, Chance(0)).shape
    (3, 1, 2, 2)
    """
    shape, kind = tuple(like.shape[1:]), like.numpy().dtype
    if name == SYNTHETIC:
        rng = chance.rng("public samples")
        if kind == np.uint8:
            return rng.integers(0, 256, (count, *shape), np.uint8)
        if kind.kind == "f":
            return rng.normal(size=(count, *shape)).astype(kind)
        raise InputError("noise cannot stand in for texts: name a public data set, public=NAME")
    inputs = loaded(name)
    if inputs.shape[1:] != shape or inputs.dtype != kind:
        raise InputError(
            f"public={name} has samples of shape {inputs.shape[1:]}, the clients' are {shape}: choose another"
        )
    return inputs


@lru_cache(maxsize=2)
def loaded(name: str) -> Array:
    """All inputs of a data set; kept, since they are asked for every round."""
    return load(name).inputs
