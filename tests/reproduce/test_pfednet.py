"""pFedNet's tables of means, also where a folder holds a part of the seeds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import sparsona
from sparsona.reproduce.pfednet.drawings import by_seed, means
from sparsona.reproduce.pfednet.plan import name_of


def test_means_are_paired_by_seed_where_runs_are_missing(tmp_path: Path) -> None:
    scores = {("local", 0): 0.5, ("local", 1): 0.7, ("fedavg", 1): 0.1, ("lam-0.03", 1): 0.8, ("lam-0.03", 4): 0.2}
    done = sparsona.run("local", data="digits", clients=2, rounds=1, out=tmp_path / "made", engine="inprocess")
    for (variant, seed), value in scores.items():
        folder = shutil.copytree(tmp_path / "made", tmp_path / "runs" / name_of("heart", variant, seed))
        summary = {**done.summary, "accuracy": {point: {"mean": value} for point in ("pre", "post")}}
        (folder / "summary.json").write_text(json.dumps(summary))
    assert means(tmp_path / "runs", tmp_path / "means.md")
    row = next(line for line in (tmp_path / "means.md").read_text().splitlines() if line.startswith("| lam-0.03 "))
    assert "| 2 | 0.5000 ± 0.3000 | +0.1000 | 0.5000 |" in row, "seed 4 has nothing to be compared with"
    assert by_seed({}, "heart", "local") == {}


@pytest.mark.parametrize("variant", ["local", "fedavg"])
def test_nothing_is_told_of_data_without_both_ends(tmp_path: Path, variant: str) -> None:
    assert by_seed({name_of("heart", variant, 0): {"metric": "accuracy", "accuracy": {}}}, "heart", variant) == {}
