"""The density of each tensor of a sparse model: the Erdos-Renyi kernel of Evci et al., RigL, ICML 2020."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from sparsona.layout import Layout


def erk(shapes: Sequence[tuple[int, ...]], density: float) -> list[float]:
    """Return densities of tensors of these shapes that keep a share `density` of all entries.

    A tensor's density is proportional to (sum of its dimensions) / (their product), so that small tensors stay
    denser; what would have to be denser than 1 is dense, and the others share the rest.

    >>> [round(d, 4) for d in erk([(20, 1, 5, 5), (20,), (50, 20, 5, 5), (50,), (500, 800), (500,)], 0.5)]
    [1.0, 1.0, 0.4915, 1.0, 0.4992, 1.0]
    """
    if density >= 1:
        return [1.0] * len(shapes)
    sizes = [prod(shape) for shape in shapes]
    raw = [sum(shape) / prod(shape) if shape else 1.0 for shape in shapes]
    sparse = set(range(len(shapes)))
    while sparse:
        ones = sum(density * sizes[i] if i in sparse else (density - 1) * sizes[i] for i in range(len(shapes)))
        scale = ones / sum(raw[i] * sizes[i] for i in sparse)
        most = max(raw[i] for i in sparse)
        if most * scale <= 1:
            return [scale * raw[i] if i in sparse else 1.0 for i in range(len(shapes))]
        sparse -= {i for i in sparse if raw[i] == most}
    return [1.0] * len(shapes)


def active_counts(layout: Layout, density: float, *, uniform: bool = False, mask_1d: bool = True) -> list[int]:
    """Return the number of active entries per tensor: by ERK, or one `density` for all.

    Without `mask_1d` biases and norms are dense, and the share `density` is for the other tensors.
    """
    masked = [t for t in layout.tensors if mask_1d or len(t.shape) > 1]
    shares = [density] * len(masked) if uniform else erk([t.shape for t in masked], density)
    found = {t.name: int(share * t.size) for t, share in zip(masked, shares, strict=True)}
    return [found.get(t.name, t.size) for t in layout.tensors]
