"""The running second moment of a sequence of updates."""

from __future__ import annotations

import numpy as np

from sparsona.message import Vector


def adam(second: Vector, update: Vector, kept: float) -> Vector:
    """v <- beta2 v + (1 - beta2) D^2: Kingma, Ba, "Adam", ICLR 2015.

    >>> adam(np.float32([4]), np.float32([1]), 0.5)
    array([2.5], dtype=float32)
    """
    square: Vector = np.square(update)
    out: Vector = np.float32(kept) * second + np.float32(1 - kept) * square
    return out


def yogi(second: Vector, update: Vector, kept: float) -> Vector:
    """v <- v - (1 - beta2) D^2 sign(v - D^2): Zaheer and others, "Adaptive Methods for Nonconvex Optimization", 2018.

    >>> yogi(np.float32([4]), np.float32([1]), 0.5)
    array([3.5], dtype=float32)
    """
    square: Vector = np.square(update)
    out: Vector = second - np.float32(1 - kept) * square * np.sign(second - square)
    return out
