"""The cases of pFedGate's card can be built, and its drawing can be made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.experiment import build
from sparsona.reproduce import PAPERS
from sparsona.reproduce.pfedgate import gates, masks

LONG = {
    f"long-{row}" for row in ("local", "fedavg", "fedavg-ft", "pfedgate-1", "pfedgate-0.5-exact", "pfedgate-0.3-exact")
}


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
    assert methods >= {"ditto", "per-fedavg", "pfedme", "fedper", "lg-fedavg"}
    forms = {c.settings["options"].get("variant", "paper") for c in paper.cases if c.settings["method"] == "pfedme"}
    assert forms == {"paper", "fedem"}
    for case in paper.cases:
        plain = case.settings["method"] in ("per-fedavg", "pfedme")
        assert case.settings["training"]["momentum"] == (0.0 if plain else 0.9), case.name
    seeds = {case.settings["seed"] for case in paper.cases}
    assert seeds == ({1} if quick else {1, 2, 3})
    long = {case.name for case in paper.cases if case.settings["rounds"] == 80}
    assert long == (set() if quick else LONG)
    assert all(claim.check({}) is None for claim in paper.claims)


def summary(pre: float, post: float, new: float | None = None) -> dict[str, Any]:
    joined = {} if new is None else {"new_clients": {"accuracy": {"post": {"mean": new}}}}
    scores = {point: {"mean": v, "bottom_decile": v - 0.2} for point, v in (("pre", pre), ("post", post))}
    return {"metric": "accuracy", "accuracy": scores, **joined}


def test_claims_take_the_mean_over_the_seeds() -> None:
    claims = {claim.text: claim.check for claim in PAPERS.get("pfedgate")(False).claims}
    above = claims["against it, cifar-10: `local` at `post` is above pFedGate 0.5 at `post`"]
    done = {"cifar-10-local": summary(0, 0.5), "cifar-10-pfedgate-0.5": summary(0, 0.6)}
    assert above(done) is False
    assert above({**done, "cifar-10-local-seed2": summary(0, 0.8)}) is True
    best = claims["80 rounds: density 0.5 above local, fedavg and fedavg-ft, `pre`"]
    ours = {"long-pfedgate-0.5-exact": summary(0.8, 0.8)}
    assert best(ours) is None
    assert best({**ours, "long-local": summary(0.7, 0.7), "long-fedavg-ft": summary(0.79, 0.9)}) is True
    assert best({**ours, "long-local": summary(0.7, 0.7), "long-fedavg-ft": summary(0.81, 0.9)}) is False
    new = claims["cifar-10: new clients are less than a point behind, `post`, epochs: 5 (C6)"]
    assert new({"cifar-10-pfedgate-0.5-new-5": summary(0, 0.6, 0.595)}) is True
    assert new({"cifar-10-pfedgate-0.5-new-5": summary(0, 0.6, 0.58)}) is False


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
    table = PAPERS.get("pfedgate")(True).drawings["pfedgate-masks.md"]
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
    folder = tmp_path / "fashion-mnist-pfedgate-0.5"
    sparsona.run("pfedgate", data="digits", clients=4, rounds=1, out=folder, evaluation={"every": 0})
    assert sorted(gates(folder)) == ["c0", "c1", "c2", "c3"]
    drawings = PAPERS.get("pfedgate")(True).drawings
    assert drawings["pfedgate-dendrogram-fashion-mnist.png"](tmp_path, tmp_path / "tree.png")
    assert (tmp_path / "tree.png").stat().st_size > 1000
    assert not drawings["pfedgate-dendrogram-cifar-10.png"](tmp_path, tmp_path / "other.png")
