"""The similarity matrix as an output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sparsona
from sparsona.errors import InputError
from sparsona.ops.pairwise import Similarity
from sparsona.report.similarity import draw_graph, draw_heat_map, edges, from_json, similarity_of, to_json

ALIKE = Similarity(("a", "b", "c"), {"base": np.array([[1, 0.9, -0.1], [0.9, 1, 0.2], [-0.1, 0.2, 1]])})


def test_a_run_saves_and_draws_it(tmp_path: Path) -> None:
    result = sparsona.run("spfl", clients=3, rounds=1, out=tmp_path / "run")
    saved = from_json((tmp_path / "run" / "similarity.json").read_text())
    assert result.similarity is not None
    assert saved.clients == result.similarity.clients == ("c0", "c1", "c2")
    assert all((saved.stages[s] == m).all() for s, m in result.similarity.stages.items())
    for name in ("similarity.png", "similarity-graph.png"):
        assert (tmp_path / "run" / name).read_bytes().startswith(b"\x89PNG")


def test_methods_without_one_save_none(tmp_path: Path) -> None:
    result = sparsona.run("fedavg", clients=3, rounds=1, out=tmp_path / "run")
    assert result.similarity is None
    assert not (tmp_path / "run" / "similarity.json").exists()
    assert similarity_of(None) is None


def test_json_there_and_back() -> None:
    assert to_json(from_json(to_json(ALIKE))) == to_json(ALIKE)


def test_the_graph_ties_each_to_its_nearest() -> None:
    matrix = ALIKE.stages["base"]
    assert edges(matrix, 1) == [(0, 1, 0.9), (1, 2, 0.2)]
    assert edges(matrix, 5) == [(0, 1, 0.9), (1, 2, 0.2)], "unlike clients are not tied"


def test_drawings(tmp_path: Path) -> None:
    draw_heat_map(ALIKE, tmp_path / "new" / "map.svg")
    draw_graph(ALIKE, tmp_path / "graph.pdf")
    draw_graph(Similarity(("a",), {"base": np.ones((1, 1))}), tmp_path / "one.png")
    assert {p.name for p in tmp_path.rglob("*.*")} == {"map.svg", "graph.pdf", "one.png"}
    with pytest.raises(InputError, match=r"must end in \.png"):
        draw_heat_map(ALIKE, tmp_path / "map.gif")
    with pytest.raises(InputError, match="nothing to draw"):
        draw_graph(Similarity((), {}), tmp_path / "none.png")
