"""The similarity matrix as an output."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection

import sparsona
from sparsona.errors import InputError
from sparsona.method import ClientMatrices
from sparsona.methods.pfednet.graph import Network
from sparsona.report.drawings import draw_graph, draw_heat_map, draw_network, edges, plot_network
from sparsona.runs.artefacts import from_json, to_json

ALIKE = ClientMatrices(("a", "b", "c"), {"base": np.array([[1, 0.9, -0.1], [0.9, 1, 0.2], [-0.1, 0.2, 1]])})


def test_a_run_saves_and_draws_it(tmp_path: Path) -> None:
    result = sparsona.run("spfl", clients=3, rounds=1, out=tmp_path / "run")
    saved = from_json((tmp_path / "run" / "similarity.json").read_text())
    found = result.artefacts["similarity"]
    assert isinstance(found, ClientMatrices)
    assert isinstance(saved, ClientMatrices)
    assert saved.clients == found.clients == ("c0", "c1", "c2")
    assert all((saved.stages[s] == m).all() for s, m in found.stages.items())
    assert to_json(sparsona.load(tmp_path / "run").artefacts["similarity"]) == to_json(found)
    for name in ("similarity.png", "similarity-graph.png"):
        assert (tmp_path / "run" / name).read_bytes().startswith(b"\x89PNG")


def test_a_run_saves_and_draws_its_network(tmp_path: Path) -> None:
    result = sparsona.run("pfednet", clients=5, rounds=1, options={"k": 1}, out=tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "network.json").read_text())
    found = result.artefacts["network"]
    assert saved == json.loads(to_json(found))
    assert saved["clients"] == list(found.clients) == ["c0", "c1", "c2", "c3", "c4"]
    assert 3 <= len(saved["edges"]) <= 5
    assert (tmp_path / "run" / "network.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "run" / "similarity.json").exists()


def test_the_drawing_of_a_network_has_each_edge_once(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    sketches = {"b": np.zeros(1), "a": np.ones(1), "c": np.array([5.0])}
    network = Network.empty(1).joined(sketches, 1, "euclidean", weighted=True).artefact()
    plot = Figure().subplots()
    plot_network(plot, network)
    (lines,) = (c for c in plot.collections if isinstance(c, LineCollection))
    ends = [line.round(6).tolist() for line in lines.get_segments()]
    third = [[1, 0], [-0.5, 0.866025], [-0.5, -0.866025]]  # a, b, c around the circle
    assert ends == [[third[1], third[0]], [third[0], third[2]]]
    assert np.diff(lines.get_linewidth()) < 0, "the longer edge weighs less"
    draw_network(network, tmp_path / "new" / "network.svg")
    with pytest.raises(InputError, match=r"must end in \.png"):
        draw_network(network, tmp_path / "network.gif")


def test_methods_without_one_save_none(tmp_path: Path) -> None:
    result = sparsona.run("fedavg", clients=3, rounds=1, out=tmp_path / "run")
    assert result.artefacts == {}
    assert not [*(tmp_path / "run").glob("similarity*"), *(tmp_path / "run").glob("network*")]


def test_json_there_and_back() -> None:
    assert to_json(from_json(to_json(ALIKE))) == to_json(ALIKE)


def test_the_graph_ties_each_to_its_nearest() -> None:
    matrix = ALIKE.stages["base"]
    assert edges(matrix, 1) == [(0, 1, 0.9), (1, 2, 0.2)]
    assert edges(matrix, 5) == [(0, 1, 0.9), (1, 2, 0.2)], "unlike clients are not tied"


def test_drawings(tmp_path: Path) -> None:
    draw_heat_map(ALIKE, tmp_path / "new" / "map.svg")
    draw_graph(ALIKE, tmp_path / "graph.pdf")
    draw_graph(ClientMatrices(("a",), {"base": np.ones((1, 1))}), tmp_path / "one.png")
    assert {p.name for p in tmp_path.rglob("*.*")} == {"map.svg", "graph.pdf", "one.png"}
    with pytest.raises(InputError, match=r"must end in \.png"):
        draw_heat_map(ALIKE, tmp_path / "map.gif")
    with pytest.raises(InputError, match="nothing to draw"):
        draw_graph(ClientMatrices((), {}), tmp_path / "none.png")
