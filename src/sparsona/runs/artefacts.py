"""Artefacts of a method's server, such as a graph of its clients, as JSON in the run directory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparsona.errors import RunError, printable
from sparsona.files import json_of, read_regular, write_atomically
from sparsona.method import Artefact, ClientGraph, ClientMatrices


def to_json(artefact: Artefact) -> str:
    """Return the artefact as JSON: clients and one row per client and stage, or named edges with weights.

    >>> to_json(ClientMatrices(("a", "b"), {"head": np.eye(2)}))
    '{"clients": ["a", "b"], "stages": {"head": [[1.0, 0.0], [0.0, 1.0]]}}\\n'
    >>> to_json(ClientGraph(("a", "b"), ((0, 1),), (1.0,)))
    '{"clients": ["a", "b"], "edges": [["a", "b", 1.0]]}\\n'
    """
    tree: dict[str, Any] = {"clients": list(artefact.clients)}
    if isinstance(artefact, ClientMatrices):
        tree["stages"] = {stage: matrix.tolist() for stage, matrix in artefact.stages.items()}
    else:
        names, pairs = artefact.clients, zip(artefact.edges, artefact.weights, strict=True)
        tree["edges"] = [[names[i], names[j], weight] for (i, j), weight in pairs]
    return json.dumps(tree) + "\n"


def from_json(text: str) -> Artefact:
    """Invert :func:`to_json`."""
    tree = json_of(text)
    clients = tuple(tree["clients"])
    if "stages" in tree:
        return ClientMatrices(clients, {name: np.array(rows, np.float64) for name, rows in tree["stages"].items()})
    place = {name: i for i, name in enumerate(clients)}
    edges = tuple((place[one], place[other]) for one, other, _ in tree["edges"])
    return ClientGraph(clients, edges, tuple(float(weight) for _, _, weight in tree["edges"]))


def save(artefacts: Mapping[str, Artefact], run: Path) -> None:
    """Write artefacts into the run directory."""
    for name, artefact in artefacts.items():
        write_atomically(run / f"{name}.json", to_json(artefact))


def load(run: Path, names: tuple[str, ...] = ("similarity", "network")) -> dict[str, Artefact]:
    """Return the artefacts of these names that the run directory holds."""
    files = {name: run / f"{name}.json" for name in names}
    found = {}
    for name, file in files.items():
        if file.exists():
            try:
                found[name] = from_json(read_regular(file).decode())
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                why = printable(repr(error), 200)
                raise RunError(f"{file} is damaged ({why}): run it again into another --out") from None
    return found
