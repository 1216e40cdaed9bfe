"""Augmentation of training images."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from sparsona.errors import InputError

PAD = 4


def crop_and_flip(images: torch.Tensor) -> torch.Tensor:
    """Each image shifted by up to four pixels each way and filled with black; half of them are mirrored left to right.

    This is the usual augmentation for CIFAR. It draws from torch's generator, which the caller seeds.

    >>> crop_and_flip(torch.ones(5, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([5, 3, 32, 32])
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
