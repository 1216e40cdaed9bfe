"""The cases of pFedGate's card can be built, and its drawing can be made."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import sparsona
from sparsona.experiment import build
from sparsona.reproduce import PAPERS, SIZES, Size
from sparsona.reproduce.pfedgate.gates import gates, masks


@pytest.mark.parametrize("size", SIZES)
def test_cases_are_valid_and_named_once(size: Size) -> None:
    paper = PAPERS.get("pfedgate")(size)
    names = [case.name for case in paper.cases]
    assert len(set(names)) == len(names)
    for case in paper.cases:
        experiment, _ = build(case.settings, case.name)
        assert experiment.split.use == "pooled"
        plain = case.settings["method"] in ("per-fedavg", "pfedme")
        assert case.settings["training"]["momentum"] == (0.0 if plain else 0.9), case.name
    methods = {case.settings["method"] for case in paper.cases}
    assert methods >= {"pfedgate", "local", "fedavg", "fedrep", "heterofl", "ditto"}
    if size != "day":
        assert methods >= {"fedmask", "per-fedavg", "pfedme"}
    if size == "whole":
        assert methods >= {"fedem", "fedmd", "lg-fedavg"}
    assert {case.settings["seed"] for case in paper.cases} == {1, 2, 3}
    assert {claim.check({}).word for claim in paper.claims if claim.cost} == {"not run"}


def test_all_methods_have_the_same_budget_of_rates() -> None:
    for size in SIZES:
        grids = {case.of: case.grid for case in PAPERS.get("pfedgate")(size).cases if case.grid is not None}
        assert {"fashion-mnist-local", "fashion-mnist-pfedgate-0.3", "fashion-mnist-fedrep"} <= set(grids)
        assert {(len(grid.values), grid.rounds) for grid in grids.values()} == {(3, 50 if size == "whole" else 20)}


def test_the_papers_ablations_are_rows() -> None:
    rows = {case.of: case.settings["options"] for case in PAPERS.get("pfedgate")("quick").cases}
    base = rows["fashion-mnist-pfedgate-0.5"]
    changes = {
        "no-pre-norm": "pre_norm",
        "no-post-norm": "post_norm",
        "no-sigmoid": "sigmoid",
        "client-wise": "gate_of",
    }
    for name, option in changes.items():
        changed = rows[f"fashion-mnist-pfedgate-0.5-{name}"]
        assert {key for key in changed if changed[key] != base.get(key)} == {option}
    assert rows["fashion-mnist-pfedgate-0.5-closed"] == {**base, "gate_start": 0.0}, "the paper's start"
    for size, start in (("day", 3.0), ("whole", 0.0)):
        longer = {case.of: case.settings["options"] for case in PAPERS.get("pfedgate")(size).cases}
        assert longer["fashion-mnist-pfedgate-0.5"]["gate_start"] == start
    assert rows["fashion-mnist-pfedgate-mixed"]["density"] == (0.5, 0.1)


def test_a_client_with_next_to_nothing_has_no_masks(tmp_path: Path) -> None:
    options = {"density": 0.5, "paths": "one", "knapsack": "greedy"}
    skewed = {"data": "digits", "clients": 12, "partition": "dirichlet-classes:0.01"}
    done = sparsona.run("pfedgate", **skewed, rounds=1, out=tmp_path / "a", options=options)
    assert min(one.train for one in done.clients) == 1
    assert np.isfinite(masks(tmp_path / "a").trained)


def test_masks_of_a_run(tmp_path: Path) -> None:
    """Choices and densities as the blocks' sizes give them; in training mode a norm ties the scales to its bias."""
    options = {"density": 0.5, "paths": "one", "knapsack": "greedy"}
    run = tmp_path / "a"
    sparsona.run("pfedgate", data="digits", clients=3, rounds=2, out=run, options=options, evaluation={"every": 0})
    found = masks(run)
    models = gates(run)
    kept = [float(m.cut.sizes[m.frozen != 0].sum() / m.cut.sizes.sum()) for m in models.values()]
    assert found.density == pytest.approx(np.mean(kept), abs=0.05)
    assert 0.2 <= found.density <= 0.5
    assert 0 < found.trained < found.evaluated
    assert found.sent >= found.density - 0.05
    assert found.choices >= 1
    table = PAPERS.get("pfedgate")("quick").drawings["pfedgate-masks.md"]
    assert table(tmp_path, tmp_path / "masks.md")
    assert f"| a | 0.5 | {found.density:.4f} |" in (tmp_path / "masks.md").read_text()
    assert not table(run, tmp_path / "none.md")
    told = (tmp_path / "masks.md").read_text().replace("| a | 0.5 | ", "| a | 0.5 | 9")
    (tmp_path / "masks.md").write_text(told)
    table(tmp_path, tmp_path / "masks.md")
    assert (tmp_path / "masks.md").read_text() == told, "what is known of a run is not found out again"
    os.utime(run / "summary.json", (2e9, 2e9))
    table(tmp_path, tmp_path / "masks.md")
    assert (tmp_path / "masks.md").read_text() != told, "unless the run is newer"


def test_dendrogram_of_the_gates(tmp_path: Path) -> None:
    folder = tmp_path / "fashion-mnist-pfedgate-0.5-1"
    sparsona.run("pfedgate", data="digits", clients=4, rounds=1, out=folder, evaluation={"every": 0})
    assert sorted(gates(folder)) == ["c0", "c1", "c2", "c3"]
    drawings = PAPERS.get("pfedgate")("quick").drawings
    assert drawings["pfedgate-dendrogram-fashion-mnist.png"](tmp_path, tmp_path / "tree.png")
    assert (tmp_path / "tree.png").stat().st_size > 1000
    assert not drawings["pfedgate-dendrogram-cifar-10.png"](tmp_path, tmp_path / "other.png")
