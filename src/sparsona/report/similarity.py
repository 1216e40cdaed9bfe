"""Who is like whom: the similarity matrix of a run as a file, a heat map and a graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.errors import InputError
from sparsona.ops.pairwise import Matrix, Similarity

SUFFIXES = (".png", ".svg", ".pdf")


def similarity_of(server: Any) -> Similarity | None:
    """The similarity that a method's server declares in its state, where it has measured one."""
    found = getattr(server, "similarity", None)
    return found if isinstance(found, Similarity) and found.clients else None


def to_json(similarity: Similarity) -> str:
    """The matrices as JSON: the clients, and by stage a row a client.

    >>> to_json(Similarity(("a", "b"), {"head": np.eye(2)}))
    '{"clients": ["a", "b"], "stages": {"head": [[1.0, 0.0], [0.0, 1.0]]}}\\n'
    """
    stages = {stage: matrix.tolist() for stage, matrix in similarity.stages.items()}
    return json.dumps({"clients": list(similarity.clients), "stages": stages}) + "\n"


def from_json(text: str) -> Similarity:
    raw: Mapping[str, Any] = json.loads(text)
    return Similarity(tuple(raw["clients"]), {k: np.array(v, np.float64) for k, v in raw["stages"].items()})


def save(similarity: Similarity, folder: Path) -> None:
    """Into `folder`: similarity.json, similarity.png and similarity-graph.png."""
    (folder / "similarity.json").write_text(to_json(similarity), encoding="utf-8")
    draw_heat_map(similarity, folder / "similarity.png")
    draw_graph(similarity, folder / "similarity-graph.png")


def edges(matrix: Matrix, neighbours: int = 3) -> list[tuple[int, int, float]]:
    """The graph behind a matrix: each client and those most like it, as pairs i < j with their similarity.

    Ties go to the first; a similarity of 0 or less is no edge.

    >>> edges(np.array([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]]), neighbours=1)
    [(0, 1, 0.9), (1, 2, 0.2)]
    """
    found: dict[tuple[int, int], float] = {}
    for i, row in enumerate(matrix):
        order = [int(j) for j in np.argsort(-row, kind="stable") if j != i]
        for j in order[:neighbours]:
            if row[j] > 0:
                found[min(i, j), max(i, j)] = float(row[j])
    return [(i, j, weight) for (i, j), weight in sorted(found.items())]


def draw_heat_map(similarity: Similarity, to: Path) -> None:
    """One square a stage, a row and a column a client."""
    figure, axes = _figure(similarity, to)
    away = [m[~np.eye(len(m), dtype=bool)] for m in similarity.stages.values() if len(m) > 1]
    low = min((float(values.min()) for values in away), default=0.0)
    for plot, (stage, matrix) in zip(axes, similarity.stages.items(), strict=True):
        image = plot.imshow(matrix, vmin=min(low, 0.0), vmax=1.0, cmap="viridis")
        plot.set_title(f"{stage}: cosine of updates")
        _ticks(plot, similarity.clients)
    figure.colorbar(image, ax=axes)
    figure.savefig(to, dpi=120)


def draw_graph(similarity: Similarity, to: Path, neighbours: int = 3) -> None:
    """The clients on a circle, each tied to those most like it; the darker, the more alike."""
    figure, axes = _figure(similarity, to)
    angles = 2 * np.pi * np.arange(len(similarity.clients)) / len(similarity.clients)
    x, y = np.cos(angles), np.sin(angles)
    for plot, (stage, matrix) in zip(axes, similarity.stages.items(), strict=True):
        ties = edges(matrix, neighbours)
        weights = [weight for _, _, weight in ties]
        low, high = min(weights, default=0.0), max(weights, default=1.0)
        for i, j, weight in ties:
            shade = 0.15 + 0.85 * (weight - low) / (high - low) if high > low else 1.0
            plot.plot(x[[i, j]], y[[i, j]], "-", color="tab:blue", alpha=shade, linewidth=1 + 2 * shade)
        plot.plot(x, y, "o", color="black", markersize=4)
        if len(similarity.clients) <= 60:
            for name, a, b in zip(similarity.clients, x, y, strict=True):
                plot.annotate(name, (1.12 * a, 1.12 * b), ha="center", va="center", fontsize=8)
        plot.set_title(f"{stage}: the {neighbours} most alike, {low:.2f} to {high:.2f}")
        plot.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
        plot.axis("off")
    figure.savefig(to, dpi=120)


def _figure(similarity: Similarity, to: Path) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    if to.suffix not in SUFFIXES:
        raise InputError(f"cannot draw to {to}: the name must end in .png, .svg or .pdf")
    if not similarity.stages:
        raise InputError("no similarity has been measured yet: nothing to draw")
    to.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(1 + 4 * len(similarity.stages), 4), layout="constrained")
    return figure, figure.subplots(1, len(similarity.stages), squeeze=False)[0]


def _ticks(plot: Any, clients: tuple[str, ...]) -> None:
    if len(clients) <= 40:
        plot.set_xticks(range(len(clients)), clients, rotation=90)
        plot.set_yticks(range(len(clients)), clients)
