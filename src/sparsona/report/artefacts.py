"""A run's artefacts as drawings: networks and similarities of clients, overlaps of masks, trees of gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.errors import InputError, RunError
from sparsona.export.files import read_model
from sparsona.export.predict import predictor_in
from sparsona.message import Vector
from sparsona.method import ClientGraph, ClientId, SparsePredictor
from sparsona.ops.pairwise import Matrix
from sparsona.runs.artefacts import load
from sparsona.runs.directory import GREETINGS, RunDirectory

MOST = 100
"""Largest number of clients that are drawn, the first by name."""
NOT_ARTEFACTS = ("summary.json", "about.json", "study.json", GREETINGS)


@dataclass(frozen=True)
class DrawnGraph:
    """Clients and weighted edges between their names."""

    name: str
    clients: tuple[ClientId, ...]
    edges: tuple[tuple[ClientId, ClientId, float], ...]


@dataclass(frozen=True)
class HeatMap:
    """A square matrix of values between clients."""

    name: str
    part: str
    clients: tuple[ClientId, ...]
    values: Matrix


@dataclass(frozen=True)
class Tree:
    """Ward's tree of the clients: the leaves in their order, and each joint as four points (x, height)."""

    leaves: tuple[ClientId, ...]
    x: tuple[tuple[float, ...], ...]
    y: tuple[tuple[float, ...], ...]


def json_artefacts(folder: Path) -> tuple[list[DrawnGraph], list[HeatMap]]:
    """Return the networks and matrices that the method has left in the run directory."""
    graphs: list[DrawnGraph] = []
    heats: list[HeatMap] = []
    names = tuple(sorted(file.stem for file in folder.glob("*.json") if file.name not in NOT_ARTEFACTS))
    try:
        found = load(folder, names)
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"a JSON file in {folder} is not what a method leaves ({error}): take it away") from None
    for name, artefact in found.items():
        clients = artefact.clients[:MOST]
        if isinstance(artefact, ClientGraph):
            pairs = zip(artefact.edges, artefact.weights, strict=True)
            inside = [(i, j, weight) for (i, j), weight in pairs if max(i, j) < len(clients)]
            graphs.append(DrawnGraph(name, clients, tuple((clients[i], clients[j], weight) for i, j, weight in inside)))
        else:
            heats += [HeatMap(name, stage, clients, rows[:MOST, :MOST]) for stage, rows in artefact.stages.items()]
    return graphs, heats


def mask_overlap(folder: Path, clients: Sequence[ClientId]) -> HeatMap | None:
    """Return the overlap of the clients' sparse models: weights that both keep, divided by weights that either keeps.

    None if the models are missing, are not single vectors of one size, or keep everything.
    """
    directory = RunDirectory(folder)
    chosen = [client for client in sorted(clients) if directory.model_file(client).exists()][:MOST]
    bits: list[Any] = []
    for client in chosen:
        found = read_model(directory.model_file(client))
        if "tree" in found.notes or not found.tensors:
            return None
        bits.append(np.concatenate([np.packbits(array.reshape(-1) != 0) for _, array in sorted(found.tensors.items())]))
    if len(bits) < 2 or len({len(row) for row in bits}) > 1:
        return None
    counts = [int(np.bitwise_count(row).sum()) for row in bits]
    if min(counts) > 0.98 * max(counts) and all(np.array_equal(bits[0], row) for row in bits[1:]):
        return None
    overlap = np.eye(len(bits))
    for i, one in enumerate(bits):
        for j in range(i):
            both = int(np.bitwise_count(one & bits[j]).sum())
            overlap[i, j] = overlap[j, i] = both / max(counts[i] + counts[j] - both, 1)
    return HeatMap("masks", "kept weights", tuple(chosen), overlap)


def gate_tree(folder: Path, clients: Sequence[ClientId]) -> Tree | None:
    """Return Ward's tree of clients by the scales of their gates; None without gates."""
    from scipy.cluster.hierarchy import dendrogram, linkage

    directory = RunDirectory(folder)
    chosen = [client for client in sorted(clients) if directory.model_file(client).exists()][:MOST]
    scales = {client: found for client in chosen if (found := _signature(directory.model_file(client))) is not None}
    if len(scales) < 2 or len({len(row) for row in scales.values()}) > 1:
        return None
    links = linkage(np.stack(list(scales.values())).astype(np.float64), "ward")
    tree = dendrogram(links, labels=list(scales), no_plot=True)
    return Tree(tuple(tree["ivl"]), tuple(map(tuple, tree["icoord"])), tuple(map(tuple, tree["dcoord"])))


def _signature(path: Path) -> Vector | None:
    """Return the vector by which a file's model is compared with others; None if it has none."""
    try:
        file = read_model(path)
        model = predictor_in(file, path) if "tree" in file.notes else None
    except (InputError, RunError):  # such as a model of a plug-in that is not installed
        return None
    return model.signature() if isinstance(model, SparsePredictor) else None
