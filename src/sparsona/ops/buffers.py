"""Float buffers (BatchNorm's statistics) beside a compressed update: sent whole, and averaged as FedAvg does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsona.layout import Layout
from sparsona.message import Message, Vector
from sparsona.method import Arrival
from sparsona.ops.mean import weighted_mean


def buffers_of(vector: Vector, layout: Layout) -> dict[str, Vector]:
    """The part of a message that carries the buffers; none for a model that has none.

    >>> from torch import nn
    >>> buffers_of(np.arange(4, dtype=np.float32), Layout.of(nn.BatchNorm1d(1)))
    {'buffers': array([2., 3.], dtype=float32)}
    """
    return {"buffers": vector[layout.trainable :]} if layout.trainable < layout.size else {}


def with_buffers(vector: Vector, message: Message, layout: Layout) -> Vector:
    """`vector` with the buffers that `message` brings, if it brings any."""
    if "buffers" not in message:
        return vector
    tail = message.vector("buffers", layout.size - layout.trainable)
    return np.concatenate([vector[: layout.trainable], tail])


def with_mean_buffers(vector: Vector, arrivals: Sequence[Arrival], layout: Layout) -> Vector:
    """`vector` with the mean of the buffers that arrived, by examples."""
    size = layout.size - layout.trainable
    if not size:
        return vector
    tail = weighted_mean((a.message.examples(), a.message.vector("buffers", size)) for a in arrivals)
    return np.concatenate([vector[: layout.trainable], tail])
