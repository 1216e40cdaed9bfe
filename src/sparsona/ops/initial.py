"""More than one model to start from."""

from sparsona.chance import Chance
from sparsona.layout import Layout
from sparsona.message import Vector


def initial_models(initial: Vector, layout: Layout, chance: Chance, count: int) -> tuple[Vector, ...]:
    """The initial model and others, the same for the same seed.

    The entries of one tensor are drawn alike, so to shuffle them within the tensor is to draw again.
    """
    models = [initial]
    for number in range(1, count):
        out = initial.copy()
        for i, tensor in enumerate(layout.tensors):
            chance.rng(f"initial model {number}", layer=i).shuffle(out[tensor.slice])
        models.append(out)
    return tuple(models)
