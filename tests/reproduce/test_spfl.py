"""The runs of SPFL's and PLGA's tables: they are well-formed experiments, and claims are judged by means over seeds."""

from __future__ import annotations

from typing import Any

import pytest

from sparsona.experiment import build
from sparsona.report.curves import Mark
from sparsona.reproduce import PAPERS, SIZES, Size
from sparsona.reproduce.plga import at_second, equal_seconds, held
from sparsona.reproduce.spfl import GAMMA
from sparsona.runs.records import ClientRecord


@pytest.mark.parametrize("name", ["spfl", "plga"])
@pytest.mark.parametrize("size", SIZES)
def test_every_case_is_an_experiment(name: str, size: Size) -> None:
    paper = PAPERS.get(name)(size)
    assert len({case.name for case in paper.cases}) == len(paper.cases)
    for case in paper.cases:
        experiment, _ = build(case.settings)
        assert experiment.clients == 10
        assert case.name.endswith(f"-{experiment.seed}")


def test_every_claim_names_rows_that_exist() -> None:
    for name in ("spfl", "plga"):
        paper = PAPERS.get(name)("whole")
        runs: dict[str, dict[int, Any]] = {}
        for case in paper.cases:
            runs.setdefault(case.of, {})[case.seed] = _summary(0.5)
        for claim in paper.claims:
            assert claim.check({}).word == "not run"
            found = claim.check(runs)
            if found.word == "not run":
                assert "not on this machine" in found.note or "no case of ours" in found.note
                assert claim.cost
            else:
                equal = claim.text.startswith(("C4", "C6"))
                assert found.word == ("yes" if equal else "no"), "equal is not above, but within a point"


def _summary(pre: float) -> dict[str, Any]:
    scores = {point: {"mean": pre} for point in ("pre", "post", "ft")}
    return {"metric": "accuracy", "accuracy": scores, "extra": {"client": pre}}


def test_spfl_has_its_control() -> None:
    """FedPer with SPFL's two steps and a plain mean, tuned like everyone."""
    for size in SIZES:
        cases = {case.name: case for case in PAPERS.get("spfl")(size).cases}
        for data in ("mnist", "cifar-10"):
            control, ours = cases[f"{data}-noniid-fedper-2-1"], cases[f"{data}-noniid-spfl-1"]
            assert control.settings["training"]["repeats"] == 2
            assert control.grid == ours.grid
        for data in ("digits", "mnist", "cifar-10"):
            grids = [case.grid for case in cases.values() if case.name.startswith(data) and case.grid is not None]
            assert len({(len(grid.values), grid.rounds) for grid in grids}) <= 1, "the same budget"


def test_gamma_is_varied_around_what_the_other_rows_have() -> None:
    for size, usual in (("quick", 5), ("whole", 10)):
        cases = [c for c in PAPERS.get("spfl")(size).cases if "spfl" in c.name]
        found = {c.name: c.settings["options"]["gamma"] for c in cases}
        assert found["mnist-noniid-spfl-1"] == found["mnist-noniid-spfl-w-1"] == usual
        assert found["mnist-noniid-spfl-often-1"] == GAMMA[usual]["spfl-often"] < usual
        assert found["mnist-noniid-spfl-seldom-1"] == GAMMA[usual]["spfl-seldom"] > usual


def test_the_row_that_drops_has_stragglers_that_are_sometimes_on_time() -> None:
    cases = {case.name: case.settings["schedule"] for case in PAPERS.get("plga")("quick").cases}
    assert cases["digits-stored-fedavg-drop-1"] == {"stragglers": 5, "straggling": "absent"}
    assert cases["digits-stored-fedavg-drop-all-1"] == cases["digits-stored-lga-1"] == {"stragglers": 5}


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


def test_plga_is_run_in_both_orders_of_the_samples() -> None:
    for size in SIZES:
        cases = {c.name: c.settings["training"] for c in PAPERS.get("plga")(size).cases}
        for order in ("stored", "shuffled"):
            for data in ("mnist",) if size == "day" else ("mnist", "digits"):
                assert cases[f"{data}-{order}-plga-1"]["order"] == order


def test_stragglers_are_measured_with_the_models_that_they_hold() -> None:
    """Of five rounds: `fast` trains in all; `slow` has cycles of three rounds, its second reply is under way."""
    lines = [
        ClientRecord(r, "fast", took_part=True, test={"pre": 0.1 * r, "post": 0.1 * r + 0.05}) for r in range(1, 6)
    ]
    for r in range(1, 6):
        test = {"pre": 0.5 + 0.01 * r} | ({"post": 0.9 + 0.01 * r} if r in (1, 4) else {})
        lines.append(ClientRecord(r, "slow", took_part=r in (1, 4), test=test))
    lines.append(ClientRecord(5, "never", test={"pre": 0.25}))
    assert held(lines, mixed=False) == pytest.approx({"fast": 0.55, "slow": 0.94, "never": 0.25})
    assert held(lines, mixed=True) == pytest.approx({"fast": 0.5, "slow": 0.53, "never": 0.25})
    more = [
        *lines,
        *(ClientRecord(6, c, took_part=c == "fast", test={"pre": 0.7, "post": 0.8}) for c in ("fast", "slow")),
    ]
    assert held([line for line in more if line.client != "never"], mixed=True)["slow"] == 0.7, "its reply came in"
