"""The cases of FedPSE's card, what settles its claims, and what its correlation distances and curves say."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsona.experiment import build
from sparsona.models._build import build_model
from sparsona_papers._differences import Runs
from sparsona_papers._paper import SIZES, Case, Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers.fedpse import fedpse
from sparsona_papers.fedpse.plan import CIFAR, METHODS, TABLE_1, WHOLE, name_of
from sparsona_papers.fedpse.readings import OVER_ROUNDS, SWING
from sparsona_papers.reproduce import reproduce

COMMAND = re.compile(r"`sparsona reproduce fedpse(?: --size (\w+))? --only '([^']+)'(?: --again)?`")


@pytest.mark.parametrize("size", SIZES)
def test_the_cases_of_fedpse(size: Size) -> None:
    paper = fedpse(size)
    names = [case.name for case in paper.cases]
    assert len(set(names)) == len(names)
    for case in paper.cases:
        experiment, _ = build(case.settings, case.name)
        assert experiment.training.optimizer == "adam"
        assert experiment.training.batch == 128
        assert (case.grid is None) == (size == "quick" and "-tuned" not in case.name)
    some: Mapping[Size, list[tuple[str, int, float]]] = {
        "quick": [("fashion-mnist", 10, ratio) for ratio in (0.0, 0.5, 1.0)],
        "day": [("fashion-mnist", 10, ratio) for ratio in (0.5, 1.0)],
        "whole": WHOLE,
        "paper": [(CIFAR, 10, 1.0), ("fashion-mnist", 100, 1.0)],
    }
    for setting in some[size]:
        assert {name_of(*setting, method) for method in METHODS} <= set(names)
    headline = next(case for case in paper.cases if case.name == "fashion-mnist-10-1-fedpse")
    assert headline.paper == 0.9334
    assert {claim.check({}).word for claim in paper.claims} == {"not run"}


def test_paper_has_what_the_whole_has_not() -> None:
    cases = {case.name: case for case in fedpse("paper").cases}
    assert {name_of(*setting, "fedpse") for setting in TABLE_1 if setting[0] == CIFAR} <= cases.keys()
    assert cases["imdb-50-1-fedstc"].paper == 0.9003
    assert cases["fashion-mnist-5-1-fedavg-curve"].settings["evaluation"]["every"] == 1
    for whole in fedpse("whole").cases:
        if whole.name in cases:
            assert cases[whole.name].identity == whole.identity, "so that it is not run twice"
    assert {case.settings["model"] for case in cases.values() if "model" in case.settings} == {"resnet18-gn"}
    assert sum(w.numel() for w in build_model("resnet18-gn", (3, 32, 32), 10).parameters()) == 11_173_962


def _made(cases: list[Case]) -> Runs:
    """Runs as they might be kept."""
    runs: dict[str, dict[int, dict[str, Any]]] = {}
    for case in cases:
        runs.setdefault(case.of, {})[case.seed] = {
            "metric": "accuracy",
            "accuracy": {point: {"mean": 0.8} for point in ("pre", "post", "ft")},
            "bytes": {"up": 10, "down": 10},
            "paper_bytes": {"up": 10, "down": 10},
            "extra": {"distance": 0.3, "distance_variance": 1e-4, OVER_ROUNDS: 0.7, SWING: 0.01},
            "test_samples": 10_000,
        }
    return runs


@pytest.mark.parametrize("size", SIZES)
def test_the_command_of_a_claim_settles_it(size: Size) -> None:
    papers = {name: fedpse(name) for name in SIZES}
    for claim in papers[size].claims:
        found = COMMAND.match(claim.cost)
        assert found is not None, claim.cost
        where: Size = next(known for known in SIZES if known == (found[1] or "whole"))
        runs = _made([case for case in papers[where].cases if fnmatch(case.name, found[2])])
        there = next(other for other in papers[where].claims if other.text == claim.text)
        assert there.check(runs).word != "not run", f"{claim.text}: {claim.cost}"


def test_sizes_have_the_same_claims() -> None:
    texts = [[claim.text for claim in fedpse(size).claims] for size in SIZES]
    assert all(own == texts[0] for own in texts)
    assert len(set(texts[0])) == len(texts[0])


def _distances_of(*steps: list[float]) -> Runs:
    """Runs by lambda: as many seeds as there are numbers, which are distances and, a thousandth of them, variances."""
    return {
        f"fashion-mnist-10-{ratio:g}-fedpse": {
            seed: {"extra": {"distance": d, "distance_variance": d / 1000}} for seed, d in enumerate(own, 1)
        }
        for ratio, own in zip((0, 0.5, 1), steps, strict=True)
    }


def test_distances_rise_if_every_step_does_with_seeds_paired() -> None:
    claims = fedpse("quick").claims
    mean, variance = (claim for claim in claims if claim.text.endswith("fashion-mnist, N = 10, last round"))
    words = {
        "yes": _distances_of([0.30, 0.35, 0.32], [0.40, 0.46, 0.41], [0.50, 0.56, 0.52]),
        "within noise": _distances_of([0.30, 0.35, 0.32], [0.40, 0.46, 0.41], [0.50, 0.40, 0.52]),
        "no": _distances_of([0.30, 0.35, 0.32], [0.50, 0.56, 0.52], [0.40, 0.46, 0.41]),
    }
    for word, runs in words.items():
        assert mean.check(runs).word == variance.check(runs).word == word
    assert (
        mean.check(words["yes"]).note
        == "0: 0.323, 0.5: 0.423, 1: 0.527; steps of +0.1 ± 0.025, then +0.1 ± 0.014, 3 seeds"
    )
    assert mean.check(_distances_of([0.3], [0.4], [0.5])).word == "within noise", "one seed"
    rows = ", ".join(f"fashion-mnist-10-{ratio}-fedpse" for ratio in ("0", "0.5", "1"))
    assert mean.check({}).note == f"missing: {rows}"


ROWS = {"cifar-10-2-1-fedpse": 1, "fashion-mnist-5-1-fedpse-curve": 4}


@PAPERS.add
def cut(size: Size) -> Paper:
    """Two rows of `paper`, and the claims."""
    whole = fedpse("paper")
    return replace(whole, cases=[_short(case, ROWS[case.name]) for case in whole.cases if case.name in ROWS])


def _short(case: Case, rounds: int) -> Case:
    """As many rounds of a few small images; the large net without the runs that choose its rate."""
    settings = {"model": "convnet2", **case.settings, "data": f"npz:{TINY}", "rounds": rounds}
    assert case.grid is not None
    return replace(case, settings=settings, grid=None if rounds == 1 else replace(case.grid, rounds=1))


TINY = Path(tempfile.gettempdir()) / f"sparsona-test-fedpse-{os.getpid()}.npz"


@pytest.fixture
def tiny() -> Iterator[None]:
    """Sixty coloured images of ten classes, where `cut` looks for them."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60, 3, 12, 12), np.uint8), np.arange(60) % 10
    np.savez(TINY, x=x[:40], y=y[:40], x_test=x[40:], y_test=y[40:])
    yield
    TINY.unlink()


@pytest.mark.usefixtures("tiny")
def test_cases_of_the_size_paper_run_to_the_end(tmp_path: Path) -> None:
    said: list[str] = []
    reproduce("test-fedpse", "paper", tmp_path, say=said.append, results=tmp_path, engine="inprocess")
    kept = json.loads((tmp_path / "test-fedpse-paper.json").read_text())["runs"]
    net, curve = (kept[row] for row in ROWS)
    assert net["weights"] == 11_173_962
    assert curve["chosen"].keys() == {"training.lr"}
    assert OVER_ROUNDS not in net["extra"]
    assert 0 <= curve["extra"][SWING] <= 1
    assert 0 <= curve["extra"][OVER_ROUNDS] <= 1
    assert len(curve["watched"]["distance"]) == 4
    assert "by validation" in " ".join(said)
