"""More than one model to start from."""

from __future__ import annotations

from sparsona.message import Vector
from sparsona.method import Task


def initial_model(task: Task, number: int) -> Vector:
    """The initial model, and for a `number` above 0 another one, the same for the same number.

    The entries of one tensor are drawn alike, so to shuffle them within the tensor is to draw again.
    """
    out = task.initial.copy()
    if number:
        for i, tensor in enumerate(task.layout.tensors):
            task.chance.rng(f"initial model {number}", layer=i).shuffle(out[tensor.slice])
    return out
