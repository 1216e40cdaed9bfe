"""Drawings as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sparsona.data.dataset import Indices
from sparsona.errors import InputError


def draw_classes(counts: Mapping[str, Indices], names: Sequence[str], to: Path) -> None:
    """Clients by classes as a heat map, written to `to` (.png, .svg or .pdf)."""
    from matplotlib.figure import Figure

    if to.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"cannot draw to {to}: the name must end in .png, .svg or .pdf")
    grid = np.stack(list(counts.values()))
    figure = Figure(figsize=(2 + 0.45 * grid.shape[1], 1.5 + 0.25 * min(len(grid), 80)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(grid, aspect="auto", cmap="viridis")
    figure.colorbar(image, label="training samples")
    axes.set_xlabel("class")
    axes.set_ylabel("client")
    axes.set_xticks(range(len(names)), [str(n) for n in names], rotation=60 if max(map(len, names)) > 2 else 0)
    if len(grid) <= 80:
        axes.set_yticks(range(len(grid)), list(counts))
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to, dpi=120)
