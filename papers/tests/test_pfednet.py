"""pFedNet's tables of means, also where a folder holds a part of the seeds; its cases, and what settles its claims."""

from __future__ import annotations

import json
import re
import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import sparsona
from sparsona.experiment import build
from sparsona_papers._differences import Runs
from sparsona_papers._paper import Size
from sparsona_papers._tables import MEASURED
from sparsona_papers._verdicts import Claim
from sparsona_papers.pfednet import pfednet
from sparsona_papers.pfednet.claims import BY_GAMMA, BY_LEVELS, BY_QSGD
from sparsona_papers.pfednet.drawings import by_seed, means
from sparsona_papers.pfednet.plan import BEST, name_of

COMMAND = re.compile(r"`sparsona reproduce pfednet --size quick --only '([^']+)'`")


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


@pytest.mark.parametrize("size", ["quick", "whole"])
def test_the_cases_of_pfednet(size: Size) -> None:
    cases = pfednet(size).cases
    assert len({case.name for case in cases}) == len(cases)
    for case in {case.of: case for case in cases}.values():
        build(case.settings, case.name)
    for data in BEST:
        for row in (f"lam-{BEST[data]:g}", "gamma-0.1", "levels-8", "qsgd-7", "rounded-32"):
            assert {case.seed for case in cases if case.of == f"{data}-{row}"} >= set(range(5))


def _run(score: float, up: int = 10, validation: float = 0.5) -> dict[str, Any]:
    return {
        "metric": "accuracy",
        "accuracy": {"pre": {"mean": score}},
        "bytes": {"up": up, "down": 10},
        "validation": {"pre": validation},
        "test_samples": 10_000,
    }


def test_the_command_of_a_claim_settles_it() -> None:
    paper = pfednet("quick")
    unsettled = []
    for claim in paper.claims:
        found = COMMAND.match(claim.cost)
        if found is None:
            unsettled.append(claim.cost)
            continue
        runs: dict[str, dict[int, dict[str, Any]]] = {}
        for case in paper.cases:
            if fnmatch(case.name, found[1]):
                runs.setdefault(case.of, {})[case.seed] = _run(0.6)
        assert claim.check(runs).word != "not run", f"{claim.text}: {claim.cost}"
    assert sum("benchmarks/pfednet.py" in cost for cost in unsettled) == 6
    assert len(unsettled) == 8, "and medical images, and a theorem"


def _claim(*words: str) -> Claim:
    (found,) = (claim for claim in pfednet("quick").claims if all(word in claim.text for word in words))
    return found


def test_a_better_trade_off_needs_fewer_bytes_and_a_loss_outside_of_the_noise() -> None:
    claim = _claim("levels-8 has fewer bytes", "kmeans")

    def told(mine: dict[int, dict[str, Any]], other: dict[int, dict[str, Any]]) -> tuple[str, str]:
        runs: Runs = {"kmeans-levels-8": mine, "kmeans-qsgd-7": other}
        found = claim.check(runs)
        return found.word, found.note

    assert told({0: _run(0.6, 9)}, {0: _run(0.6)}) == (
        "within noise",
        "0.900 of the bytes up; loses +0.0000 ± 0.0136, test samples of one seed",
    )
    assert told({0: _run(0.7, 9)}, {0: _run(0.6)})[0] == "yes"
    assert told({0: _run(0.5, 9)}, {0: _run(0.6)})[0] == "no"
    assert told({0: _run(0.7, 11)}, {0: _run(0.6)})[0] == "no", "whatever the accuracy"
    three = {seed: _run(0.598, 9) for seed in range(3)}
    assert told(three, {seed: _run(0.6) for seed in range(3)})[0] == "yes"
    assert claim.check({}).word == "not run"


def test_bytes_are_saved_at_the_lambda_of_the_validation_samples() -> None:
    claim = _claim("kmeans: of the lambdas above 0")
    runs = {f"kmeans-lam-{lam:g}": {0: _run(0.9, validation=0.5)} for lam in (0.01, 0.03, 0.06, 0.1, 0.2, 2.0)}
    assert claim.check(runs).word == "yes", "of equals the first"
    runs["kmeans-lam-0.1"] = {0: _run(0.1, validation=0.6)}
    assert claim.check(runs).word == "no"


def test_codes_are_compared_on_the_same_updates() -> None:
    claim = _claim("some number of levels", "logistic")
    codes = dict.fromkeys((*BY_LEVELS, *BY_GAMMA), (100.0, 0.5)) | dict.fromkeys(BY_QSGD, (200.0, 0.6))

    def runs() -> Runs:
        sent = {f"{code}, bytes": count for code, (count, _) in codes.items()}
        wrong = {f"{code}, error": error for code, (_, error) in codes.items()}
        return {f"{MEASURED}codes-logistic": {0: {"extra": sent | wrong}}}

    assert claim.check(runs()).word == "yes"
    codes["QSGD, 127 steps"] = (300.0, 0.1)
    assert claim.check(runs()).note == "QSGD, 7 steps: 32 levels; QSGD, 31 steps: 32 levels; QSGD, 127 steps: none"
    assert claim.check({}).word == "not run"
