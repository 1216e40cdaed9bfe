"""Drawings as files: a method's artefacts about its clients, and the clients' classes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.data.dataset import Indices
from sparsona.errors import InputError
from sparsona.method import Artefact, ClientGraph, ClientMatrices
from sparsona.ops.pairwise import Matrix
from sparsona.words import counted

SUFFIXES = (".png", ".svg", ".pdf")
NAMED = 60
"""Largest number of clients whose names are drawn."""


def draw(artefacts: Mapping[str, Artefact], folder: Path) -> None:
    """Draw NAME.png for each artefact; for a matrix also NAME-graph.png, the graph of the most similar clients."""
    for name, artefact in artefacts.items():
        if isinstance(artefact, ClientMatrices):
            draw_heat_map(artefact, folder / f"{name}.png")
            draw_graph(artefact, folder / f"{name}-graph.png")
        else:
            draw_network(artefact, folder / f"{name}.png")


def edges(matrix: Matrix, neighbours: int = 3) -> list[tuple[int, int, float]]:
    """Return the graph of a matrix: each client with its most similar ones, as pairs i < j with their similarity.

    Ties go to the first; a similarity of 0 or less is no edge.
    """
    found: dict[tuple[int, int], float] = {}
    for i, row in enumerate(matrix):
        order = [int(j) for j in np.argsort(-row, kind="stable") if j != i]
        for j in order[:neighbours]:
            if row[j] > 0:
                found[min(i, j), max(i, j)] = float(row[j])
    return [(i, j, weight) for (i, j), weight in sorted(found.items())]


def draw_heat_map(similarity: ClientMatrices, to: Path) -> None:
    """Draw one square per stage, with a row and a column per client."""
    figure, axes = _stages(similarity, to)
    away = [m[~np.eye(len(m), dtype=bool)] for m in similarity.stages.values() if len(m) > 1]
    low = min((float(values.min()) for values in away), default=0.0)
    for plot, (stage, matrix) in zip(axes, similarity.stages.items(), strict=True):
        image = plot.imshow(matrix, vmin=min(low, 0.0), vmax=1.0, cmap="viridis")
        plot.set_title(f"{stage}: cosine of updates")
        if len(clients := similarity.clients) <= 40:
            plot.set_xticks(range(len(clients)), clients, rotation=90)
            plot.set_yticks(range(len(clients)), clients)
    figure.colorbar(image, ax=axes)
    figure.savefig(to, dpi=120)


def draw_graph(similarity: ClientMatrices, to: Path, neighbours: int = 3) -> None:
    """Draw the clients on a circle, each linked to the most similar ones; darker means more similar."""
    figure, axes = _stages(similarity, to)
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
        _named(plot, similarity.clients, x, y)
        plot.set_title(f"{stage}: the {neighbours} most alike, {low:.2f} to {high:.2f}")
    figure.savefig(to, dpi=120)


def draw_network(network: ClientGraph, to: Path) -> None:
    """Draw the clients on a circle and a line per edge; wider means a larger weight."""
    figure = _figure(to, (5, 5))
    plot = figure.subplots()
    plot_network(plot, network)
    plot.set_title(f"{counted(len(network.clients), 'client')}, {counted(len(network.edges), 'edge')}")
    figure.savefig(to, dpi=120)


def plot_network(plot: Any, network: ClientGraph, colour: Callable[[str], str] = lambda client: "black") -> None:
    """Draw the network on given axes, each client in its `colour`; clients are ordered by name on the circle."""
    from matplotlib.collections import LineCollection

    order = np.argsort(np.argsort(np.array(network.clients)))
    angles = 2 * np.pi * order / max(len(order), 1)
    x, y = np.cos(angles), np.sin(angles)
    ends = np.stack([x, y], axis=1)[np.array(network.edges, np.int64).reshape(-1, 2)]
    plot.add_collection(LineCollection(list(ends), linewidths=np.minimum(network.weights, 3), color="tab:blue"))
    plot.scatter(x, y, c=[colour(client) for client in network.clients], zorder=3, s=20)
    _named(plot, network.clients, x, y)


def _named(plot: Any, clients: tuple[str, ...], x: Matrix, y: Matrix) -> None:
    """Name the clients on their circle, which needs no axes."""
    for name, a, b in zip(clients, x, y, strict=True) if len(clients) <= NAMED else ():
        plot.annotate(name, (1.12 * a, 1.12 * b), ha="center", va="center", fontsize=8)
    plot.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    plot.axis("off")


def _figure(to: Path, size: tuple[float, float]) -> Any:
    """Return a figure for a file, whose folder is made; refuse a format that cannot be drawn."""
    from matplotlib.figure import Figure

    if to.suffix not in SUFFIXES:
        raise InputError(f"cannot draw to {to}: the name must end in .png, .svg or .pdf")
    to.parent.mkdir(parents=True, exist_ok=True)
    return Figure(figsize=size, layout="constrained")


def _stages(similarity: ClientMatrices, to: Path) -> tuple[Any, Any]:
    if not similarity.stages:
        raise InputError("no similarity has been measured yet: nothing to draw")
    figure = _figure(to, (1 + 4 * len(similarity.stages), 4))
    return figure, figure.subplots(1, len(similarity.stages), squeeze=False)[0]


def draw_classes(counts: Mapping[str, Indices], names: Sequence[str], to: Path) -> None:
    """Draw a heat map of clients by classes to `to` (.png, .svg or .pdf)."""
    grid = np.stack(list(counts.values()))
    figure = _figure(to, (2 + 0.45 * grid.shape[1], 1.5 + 0.25 * min(len(grid), 80)))
    axes = figure.subplots()
    image = axes.imshow(grid, aspect="auto", cmap="viridis")
    figure.colorbar(image, label="training samples")
    axes.set_xlabel("class")
    axes.set_ylabel("client")
    axes.set_xticks(range(len(names)), [str(n) for n in names], rotation=60 if max(map(len, names)) > 2 else 0)
    if len(grid) <= 80:
        axes.set_yticks(range(len(grid)), list(counts))
    figure.savefig(to, dpi=120)
