"""The runs of SPFL's and PLGA's tables: they are well-formed experiments, and claims are judged by means over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparsona.experiment import build
from sparsona.report.curves import Mark
from sparsona.reproduce import PAPERS
from sparsona.reproduce.plga import at_second, equal_seconds, trained_last
from sparsona.reproduce.spfl import GAMMA, above, means_of, within
from sparsona.runs.records import ClientRecord


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
            equal = claim.text.startswith(("C4", "C6"))
            assert claim.check(done) is equal, "equal is not above, but within a point"


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


def test_within_looks_at_the_two_furthest_apart() -> None:
    done = {"a-1": _summary(0.9), "b-1": _summary(0.905), "c-1": _summary(0.911)}
    assert within(0.01, "a", "b")(done) is True
    assert within(0.01, "a", "b", "c")(done) is False
    assert within(0.01, "a", "d")(done) is None


def test_gamma_is_varied_around_what_the_other_rows_have() -> None:
    for quick, usual in ((True, 5), (False, 10)):
        found = {c.name: c.settings["options"]["gamma"] for c in PAPERS.get("spfl")(quick).cases if "spfl" in c.name}
        assert found["mnist-noniid-spfl-1"] == found["mnist-noniid-spfl-w-1"] == usual
        assert found["mnist-noniid-spfl-often-1"] == GAMMA[quick]["spfl-often"] < usual
        assert found["mnist-noniid-spfl-seldom-1"] == GAMMA[quick]["spfl-seldom"] > usual


def test_the_row_that_drops_has_stragglers_that_are_sometimes_on_time() -> None:
    cases = {case.name: case.settings["schedule"] for case in PAPERS.get("plga")(True).cases}
    assert cases["mnist-fedavg-drop-1"] == {"stragglers": 5, "straggling": "absent"}
    assert cases["mnist-fedavg-drop-all-1"] == cases["mnist-lga-1"] == {"stragglers": 5}


def _mark(second: float, score: float) -> Mark:
    return Mark(1, 0.0, second, 0.0, score)


def test_curves_are_read_at_one_second() -> None:
    curve = [_mark(4.5, 0.1), _mark(9.0, 0.2), _mark(13.5, 0.3)]
    assert [at_second(curve, s) for s in (4.0, 4.5, 8.9, 9.0, 13.5)] == [None, 0.1, 0.1, 0.2, 0.3]
    assert at_second(curve, 13.6) is None, "a run that has ended says nothing about later"


def test_the_first_second_that_is_read_is_one_that_all_have_reached() -> None:
    long = [_mark(4.0, 0.1), _mark(20.0, 0.2)]
    found = {"a": long, "b": [_mark(12.0, 0.3)], "c": [_mark(6.0, 0.5), _mark(12.0, 0.4)]}
    assert equal_seconds(found) == [12.0]
    assert [at_second(curve, 12.0) for curve in found.values()] == [0.1, 0.3, 0.4]
    assert equal_seconds({"a": long}) == equal_seconds({}) == []


def test_who_was_under_way_in_the_last_round_is_left_out(tmp_path: Path) -> None:
    """Its `post` is of a training that never was."""
    lines = [
        ClientRecord(1, "a", took_part=True, test={"pre": 0.0, "post": 0.0}),
        ClientRecord(2, "a", took_part=True, test={"pre": 0.5, "post": 0.7}),
        ClientRecord(2, "b", took_part=True, test={"pre": 0.7, "post": 0.8}),
        ClientRecord(2, "c", took_part=False, test={"pre": 0.9, "post": 0.1}),
    ]
    (tmp_path / "records.jsonl").write_text("".join(line.text() for line in lines))
    found = trained_last(tmp_path)
    assert found["accuracy"]["pre"]["mean"] == pytest.approx(0.6)
    assert found["accuracy"]["post"]["mean"] == pytest.approx(0.75)
    assert found["clients"] == 2
