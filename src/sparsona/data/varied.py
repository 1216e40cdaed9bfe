"""Training images that vary: drawn again by a torch Dataset with random transforms, or shifted and mirrored here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from sparsona.data._arrays import plain_array
from sparsona.data.dataset import Array, Indices
from sparsona.errors import InputError

FIRST = 4
"""Number of samples that are read twice to find out whether a Dataset is random."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed every generator that a transform may use, and leave them as they were."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002 - transforms use it
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)


def is_random(data: Any) -> bool:
    """Return whether a Dataset gives other inputs when it is read a second time."""
    if isinstance(data, torch.utils.data.IterableDataset | torch.utils.data.TensorDataset) or not len(data):
        return False
    if not isinstance(data[0], tuple | list) or isinstance(data[0][0], Mapping | tuple):
        return False
    with seeded(1):
        pairs = [(plain_array(data[k][0]), plain_array(data[k][0])) for k in range(min(FIRST, len(data)))]
    return any(not np.array_equal(one, other) for one, other in pairs)


@dataclass(frozen=True)
class ResampledRows:
    """Draws samples anew: `sources` are the owners' Datasets, `places` the owner and the number of each row.

    `encode` makes of raw samples what the net gets.
    """

    sources: tuple[Any, ...]
    places: Indices
    encode: Callable[[Array], Array] | None = None

    def draw(self, rows: Indices) -> Array:
        """These rows, drawn by a seed from torch's generator."""
        with seeded(int(torch.randint(2**31, ()))):
            found = np.stack([plain_array(self.sources[owner][k][0]) for owner, k in self.places[rows].tolist()])
        found = found if found.dtype == np.uint8 else found.astype(np.float32)
        found = found[:, None] if found.ndim == 3 and found.dtype == np.uint8 else found
        return found if self.encode is None else self.encode(found)


PAD = 4


def crop_and_flip(images: torch.Tensor) -> torch.Tensor:
    """Each image shifted by up to four pixels each way and filled with black; half of them are mirrored left to right.

    This is the usual augmentation for CIFAR. It draws from torch's generator, which the caller seeds.
    """
    if images.ndim != 4:
        raise InputError("training.augment varies images, and these samples are none: leave it out")
    n, _, height, width = images.shape
    padded = F.pad(images, (PAD, PAD, PAD, PAD))
    top, left = torch.randint(0, 2 * PAD + 1, (2, n, 1)).unbind()
    mirror = torch.rand(n, 1) < 0.5
    columns = torch.arange(width)
    columns = left + torch.where(mirror, columns.flip(0), columns)
    rows = top + torch.arange(height)
    picked = padded[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2)
