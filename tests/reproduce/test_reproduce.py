"""The runner of the papers' experiments, on a paper small enough to be run here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparsona.errors import InputError
from sparsona.experiment import build
from sparsona.methods.fedpse import ServerState
from sparsona.reproduce import PAPERS, Case, Claim, Paper, finished, reproduce, score, server_state
from sparsona.reproduce.fedpse import METHODS, TABLE_1, fedpse, name_of


@PAPERS.add
def small(quick: bool) -> Paper:
    """Two runs and a claim about them."""
    rounds = 2 if quick else 4
    settings: dict[str, Any] = {"data": "digits", "clients": 3, "rounds": rounds, "partition": "sorted:1.0"}
    cases = [
        Case("long", "a table", {**settings, "method": "fedavg"}, paper=0.75, cost=9),
        Case("short", "a table", {**settings, "method": "fedpse"}, cost=1),
        Case("other", "another table", {**settings, "method": "local"}, cost=5),
    ]

    def check(done: Any) -> bool | None:
        return done["short"]["rounds"] == rounds if "short" in done else None

    def draw(runs: Path, to: Path) -> bool:
        to.write_text(f"{len(list(runs.iterdir()))} things in the folder")
        return True

    return Paper("A small paper", cases, [Claim("it is short", check)], {"drawing.txt": draw})


NAME = "test-reproduce"


def test_all_cases_are_run_cheap_ones_first_and_only_once(tmp_path: Path) -> None:
    said: list[str] = []
    table = reproduce(NAME, True, tmp_path, say=said.append).read_text()
    order = [line.split()[1].rstrip(":") for line in said if line.endswith(" s")]
    assert order == ["short", "other", "long"]
    assert "| long | 0.7500 | 0." in table
    assert "## another table" in table
    assert "| it is short | yes |" in table
    assert "3 of 3 runs are finished" in table
    assert (tmp_path / "drawing.txt").exists()
    before = (tmp_path / "long" / "summary.json").stat().st_mtime_ns
    again = reproduce(NAME, True, tmp_path, say=said.append)
    assert again.read_text() == table
    assert (tmp_path / "long" / "summary.json").stat().st_mtime_ns == before


def test_an_interrupted_case_is_continued(tmp_path: Path) -> None:
    def stop(text: str) -> None:
        if "round 1 of" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(NAME, True, tmp_path / "broken", "short", stop)
    assert not (tmp_path / "broken" / "short" / "summary.json").exists()
    lines: list[str] = []
    reproduce(NAME, True, tmp_path / "broken", "short", lines.append)
    assert not any("round 1 of" in line for line in lines), "the first round is not run again"
    reproduce(NAME, True, tmp_path / "whole", "short", lines.append)
    digests = [
        json.loads((tmp_path / way / "short" / "summary.json").read_text())["digest"] for way in ("broken", "whole")
    ]
    assert digests[0] == digests[1]


def test_the_table_can_be_made_of_what_is_there(tmp_path: Path) -> None:
    table = reproduce(NAME, True, tmp_path, run=False).read_text()
    assert "0 of 3 runs are finished" in table
    assert "| it is short | not run |" in table


def test_what_the_server_knew_can_be_read(tmp_path: Path) -> None:
    reproduce(NAME, True, tmp_path, "short", lambda text: None)
    state = server_state(tmp_path / "short", ServerState)
    assert sorted(state.distance) == ["c0", "c1", "c2"]
    assert all(0 <= d <= 1 for d in state.distance.values())
    done = finished(small(True), tmp_path)
    assert list(done) == ["short"]
    assert score(done["short"], "ft") is None


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="fedpse"):
        reproduce("fedpes", True, Path("nowhere"))
    with pytest.raises(InputError, match="no case"):
        reproduce(NAME, True, Path("nowhere"), only="nothing-*")


@pytest.mark.parametrize("quick", [True, False])
def test_the_cases_of_fedpse(quick: bool) -> None:
    paper = fedpse(quick)
    names = [case.name for case in paper.cases]
    assert len(set(names)) == len(names)
    for case in paper.cases:
        experiment, _ = build(case.settings)
        assert experiment.training.optimizer == "adam"
        assert experiment.training.batch == 128
    wanted = [("fashion-mnist", 10, r) for r in (0.0, 0.5, 1.0)] if quick else list(TABLE_1)
    for setting in wanted:
        assert {name_of(*setting, method) for method in METHODS} <= set(names)
    headline = next(case for case in paper.cases if case.name == "fashion-mnist-10-1-fedpse")
    assert headline.paper == 0.9334
    assert all(claim.check({}) is None for claim in paper.claims)


@pytest.mark.parametrize("name", [name for name in PAPERS.names() if not name.startswith("test")])
def test_a_card_holds_every_claim(name: str) -> None:
    """No verdict is left out because it is unfavourable."""
    file = {"spfl": "spfl-plga", "plga": "spfl-plga"}.get(name, name)
    card = (Path(__file__).parents[2] / "docs" / "papers" / f"{file}.md").read_text()
    claims = [claim.text for claim in PAPERS.get(name)(True).claims]
    assert claims
    assert [text for text in claims if f"| {text} |" not in card] == []


@pytest.mark.parametrize("name", ["fedpse", "fedspa"])
def test_a_card_holds_every_run(name: str) -> None:
    card = (Path(__file__).parents[2] / "docs" / "papers" / f"{name}.md").read_text()
    assert [case.name for case in PAPERS.get(name)(True).cases if f"| {case.name} |" not in card] == []
