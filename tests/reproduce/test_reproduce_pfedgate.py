"""The cases of pFedGate's card can be built, and its drawing can be made."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparsona
from sparsona.experiment import build
from sparsona.reproduce import PAPERS
from sparsona.reproduce.pfedgate import gates


@pytest.mark.parametrize("quick", [False, True])
def test_cases_are_valid_and_named_once(quick: bool) -> None:
    paper = PAPERS.get("pfedgate")(quick)
    names = [case.name for case in paper.cases]
    assert len(set(names)) == len(names)
    for case in paper.cases:
        experiment, _ = build(case.settings, case.name)
        assert experiment.split.use == "pooled"
        assert experiment.partition == "dirichlet-classes:0.4"
    methods = {case.settings["method"] for case in paper.cases}
    assert methods >= {"pfedgate", "local", "fedavg", "fedavg-ft", "fedem", "heterofl", "fedmask", "fedmd", "fedrep"}
    assert all(claim.check({}) is None for claim in paper.claims)


def test_dendrogram_of_the_gates(tmp_path: Path) -> None:
    folder = tmp_path / "fashion-mnist-pfedgate-0.5"
    sparsona.run("pfedgate", data="digits", clients=4, rounds=1, out=folder, evaluation={"every": 0})
    assert sorted(gates(folder)) == ["c0", "c1", "c2", "c3"]
    drawings = PAPERS.get("pfedgate")(True).drawings
    assert drawings["pfedgate-dendrogram-fashion-mnist.png"](tmp_path, tmp_path / "tree.png")
    assert (tmp_path / "tree.png").stat().st_size > 1000
    assert not drawings["pfedgate-dendrogram-cifar-10.png"](tmp_path, tmp_path / "other.png")
