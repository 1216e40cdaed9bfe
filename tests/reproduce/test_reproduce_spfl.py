"""The runs of SPFL's and PLGA's tables: they are well-formed experiments, and claims are judged by means over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparsona.experiment import build
from sparsona.reproduce import PAPERS
from sparsona.reproduce.spfl import above, means_of


@pytest.mark.parametrize("name", ["spfl", "plga"])
@pytest.mark.parametrize("quick", [True, False])
def test_every_case_is_an_experiment(name: str, quick: bool) -> None:
    paper = PAPERS.get(name)(quick)
    assert len({case.name for case in paper.cases}) == len(paper.cases)
    for case in paper.cases:
        experiment, _ = build(case.settings)
        assert experiment.clients == 10
        assert case.name.endswith(f"-{experiment.seed}")


def test_every_claim_names_runs_that_exist() -> None:
    for name in ("spfl", "plga"):
        paper = PAPERS.get(name)(False)
        done = {case.name: _summary(0.5) for case in paper.cases}
        for claim in paper.claims:
            assert claim.check({}) is None
            assert claim.check(done) is False, "equal is not above"


def _summary(pre: float) -> dict[str, Any]:
    scores = {point: {"mean": pre} for point in ("pre", "post", "ft")}
    return {"metric": "accuracy", "accuracy": scores, "simulated_seconds": 1.0}


def test_claims_compare_means_over_the_seeds_that_all_have() -> None:
    done = {"a-1": _summary(0.9), "a-2": _summary(0.1), "b-1": _summary(0.5)}
    assert above("a", "b")(done) is True
    assert above("a", "b")({**done, "b-2": _summary(0.6)}) is False
    assert above("a", "c")(done) is None


def test_the_table_of_means_waits_for_runs(tmp_path: Path) -> None:
    cases = PAPERS.get("spfl")(True).cases
    assert means_of(cases)(tmp_path, tmp_path / "means.md") is False
    assert (tmp_path / "means.md").read_text().startswith("| run |")
