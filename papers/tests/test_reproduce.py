"""The runner of the papers' experiments, on a paper small enough to be run here."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from sparsona.errors import InputError
from sparsona.experiment import build
from sparsona.methods.fedpse import ServerState
from sparsona_papers._differences import Runs, score
from sparsona_papers._paper import SIZES, Case, Grid, Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers._results import Results, digest_of, results_file
from sparsona_papers._runs import finished, server_scores, server_state
from sparsona_papers._tables import MEASURED, runs_of
from sparsona_papers._verdicts import Claim, fact
from sparsona_papers.reproduce import BEGIN, END, HEADLINES, card, left, reproduce


@PAPERS.add
def small(size: Size) -> Paper:
    """Two runs and a claim about them."""
    rounds = {"quick": 2, "day": 3, "whole": 4, "paper": 5}[size]
    settings: dict[str, Any] = {"data": "digits", "clients": 3, "rounds": rounds, "partition": "sorted:1.0"}
    cases = [
        Case("long", "a table", {**settings, "method": "fedavg"}, paper=0.75, cost=9),
        Case("short", "a table", {**settings, "method": "fedpse"}, cost=1),
        Case("other", "another table", {**settings, "method": "local"}, cost=5),
    ]

    def check(runs: Runs) -> tuple[bool, str] | None:
        found = next(iter(runs.get("short", {}).values()), None)
        return None if found is None else (found["rounds"] == rounds, f"{rounds} rounds")

    def draw(runs: Path, to: Path) -> bool:
        to.write_text(f"{len(list(runs.iterdir()))} things in the folder")
        return True

    claims = [Claim("it is short", fact(check, "short"), "a minute")]
    return Paper("A small paper", cases, claims, {"drawing.txt": draw})


NAME = "test-reproduce"


def test_all_cases_are_run_cheap_ones_first_and_only_once(tmp_path: Path) -> None:
    said: list[str] = []
    table = reproduce(NAME, "quick", tmp_path, say=said.append, results=tmp_path).read_text()
    order = [line.split()[1].rstrip(":") for line in said if line.endswith(" s")]
    assert order == ["short", "other", "long"]
    assert "| long | 0.7500 | 0." in table
    assert "## another table" in table
    assert "| it is short | yes | 2 rounds |" in table
    assert "3 of 3 runs are finished" in table
    assert (tmp_path / "drawing.txt").exists()
    before = (tmp_path / "long" / "summary.json").stat().st_mtime_ns
    again = reproduce(NAME, "quick", tmp_path, say=said.append, results=tmp_path)
    assert again.read_text() == table
    assert (tmp_path / "long" / "summary.json").stat().st_mtime_ns == before


def test_an_interrupted_case_is_continued(tmp_path: Path) -> None:
    def stop(text: str) -> None:
        if "round 1 of" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(NAME, "quick", tmp_path / "broken", "short", stop)
    assert not (tmp_path / "broken" / "short" / "summary.json").exists()
    lines: list[str] = []
    reproduce(NAME, "quick", tmp_path / "broken", "short", lines.append)
    assert not any("round 1 of" in line for line in lines), "the first round is not run again"
    reproduce(NAME, "quick", tmp_path / "whole", "short", lines.append)
    digests = [
        json.loads((tmp_path / way / "short" / "summary.json").read_text())["digest"] for way in ("broken", "whole")
    ]
    assert digests[0] == digests[1]


def test_the_table_can_be_made_of_what_is_there(tmp_path: Path) -> None:
    table = reproduce(NAME, "quick", tmp_path, run=False).read_text()
    assert "0 of 3 runs are finished" in table
    assert "| it is short | a minute |" in table


def test_what_the_server_knew_can_be_read(tmp_path: Path) -> None:
    reproduce(NAME, "quick", tmp_path, "short", lambda text: None)
    state = server_state(tmp_path / "short", ServerState)
    assert sorted(state.distance) == ["c0", "c1", "c2"]
    assert all(0 <= d <= 1 for d in state.distance.values())
    done = finished(small("quick").cases, tmp_path)
    assert list(done) == ["short"]
    assert score(done["short"], "ft") is None


def test_what_is_watched_is_kept_by_round_also_of_a_run_that_was_interrupted(tmp_path: Path) -> None:
    """FedPSE's correlation distances, as its claim C7 wants them."""
    watch = PAPERS.get("fedpse")("quick").watch
    settings = {"data": "digits", "clients": 3, "rounds": 3, "partition": "sorted:1.0", "method": "fedpse"}
    PAPERS._found[f"{NAME}-watch"] = lambda size: Paper("w", [Case("a", "t", settings)], watch=watch)

    def stop(text: str) -> None:
        if "round 2 of" in text:
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            reproduce(f"{NAME}-watch", "quick", tmp_path, say=stop, results=tmp_path)
        reproduce(f"{NAME}-watch", "quick", tmp_path, say=lambda text: None, results=tmp_path)
    finally:
        del PAPERS._found[f"{NAME}-watch"]
    found = Results.read(results_file(tmp_path, f"{NAME}-watch", "quick")).runs["a"]["watched"]
    assert set(found) == {"distance", "distance_variance"}
    assert len(found["distance"]) == 3
    last = server_state(tmp_path / "a", ServerState).distance.values()
    assert found["distance"][-1] == pytest.approx(sum(last) / 3, rel=1e-4)


def test_the_servers_own_vector_can_be_scored(tmp_path: Path) -> None:
    """FedAvg's is what its clients have at `pre`."""
    from sparsona.methods.averaging import ServerState as Mean
    from sparsona.prepare import prepare
    from sparsona.runs.directory import RunDirectory

    reproduce(NAME, "quick", tmp_path, "long", lambda text: None)
    folder = RunDirectory(tmp_path / "long")
    found = server_scores(folder, prepare(small("quick").cases[0].settings), Mean)
    told = folder.summary()["accuracy"]["pre"]
    assert found == {"server": pytest.approx(told["mean"]), "server_weighted": pytest.approx(told["weighted"])}


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="fedpse"):
        reproduce("fedpes", "quick", Path("nowhere"))
    with pytest.raises(InputError, match="quick, day, whole or paper, not 'short'"):
        reproduce("fedpse", cast(Size, "short"), Path("nowhere"))
    with pytest.raises(InputError, match="does not come in the size day"):
        reproduce("pfednet", "day", Path("nowhere"))
    with pytest.raises(InputError, match="no case"):
        reproduce(NAME, "quick", Path("nowhere"), only="nothing-*")
    with pytest.raises(InputError, match="fedthin does not come in the size paper"):
        reproduce("fedthin", "paper", Path("nowhere"))
    assert not Path("nowhere").exists()


def test_a_row_is_asked_for_by_the_name_that_left_prints() -> None:
    """Runs have their seed in the name; a pattern that fits a run's name means that run."""
    row = "fashion-mnist-pfedgate-0.3"
    assert left("pfedgate", "day", row).names == {row: [f"{row}-1", f"{row}-2", f"{row}-3"]}
    assert left("pfedgate", "day", f"{row}-1").names == {row: [f"{row}-1"]}


def test_kept_results_outlive_the_runs(tmp_path: Path) -> None:
    """A case that is kept is not run again without its directory, unless it is asked for or its settings change."""
    said: list[str] = []
    reproduce(NAME, "quick", tmp_path / "first", "short", said.append, results=tmp_path / "kept")
    file = results_file(tmp_path / "kept", NAME, "quick")
    assert file is not None
    before = file.read_text()
    table = reproduce(NAME, "quick", tmp_path / "second", "short", said.append, results=tmp_path / "kept").read_text()
    assert not (tmp_path / "second" / "short").exists()
    assert "| it is short | yes |" in table
    assert "1 of 3 runs are finished" in table
    reproduce(NAME, "quick", tmp_path / "third", "short", said.append, results=tmp_path / "kept", again=True)
    assert (tmp_path / "third" / "short" / "summary.json").exists()
    digest = json.loads(before)["runs"]["short"]["settings"]
    file.write_text(before.replace(digest, "0" * 12))
    assert runs_of(small("quick"), Results.read(file)) == {}
    reproduce(NAME, "quick", tmp_path / "fourth", "short", said.append, results=tmp_path / "kept")
    assert (tmp_path / "fourth" / "short").exists()
    found = json.loads(file.read_text())["runs"]["short"]
    assert found["settings"] == digest
    assert found["test_samples"] > 0
    assert {"mean", "weighted", "bottom_decile", "worst"} <= found["accuracy"]["pre"].keys()
    assert "machine" in found
    assert "date" in found
    assert "/" not in before.replace("GPU/", ""), "no path of this machine is kept"
    file.write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        Results.read(file)


def test_a_grid_is_decided_by_validation_samples_and_tried_once(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": "digits", "clients": 3, "rounds": 2, "partition": "iid", "method": "fedavg"}
    grid = Grid("training.lr", (1e-6, 0.1), 1)
    cases = [Case(f"a-{s}", "t", {**settings, "seed": s}, row="a", grid=grid) for s in (4, 5)]
    PAPERS._found[f"{NAME}-grid"] = lambda size: Paper("grids", cases)
    said: list[str] = []
    try:
        reproduce(f"{NAME}-grid", "quick", tmp_path, say=said.append, results=tmp_path)
        reproduce(f"{NAME}-grid", "whole", tmp_path / "whole", only="a-4", say=said.append, results=tmp_path)
        reproduce(f"{NAME}-grid", "quick", tmp_path / "again", only="a-4", say=[].append, results=tmp_path, again=True)
    finally:
        del PAPERS._found[f"{NAME}-grid"]
    taken = Results.read(results_file(tmp_path, f"{NAME}-grid", "whole")).runs
    assert sorted(taken) == ["a-4", "tune-a-0.1", "tune-a-1e-06"], "taken over with what chose it"
    assert not (tmp_path / "whole" / "a-4").exists()
    assert (tmp_path / "again" / "tune-a-0.1" / "summary.json").exists(), "trials too"
    kept = Results.read(results_file(tmp_path, f"{NAME}-grid", "quick")).runs
    assert sorted(kept) == ["a-4", "a-5", "tune-a-0.1", "tune-a-1e-06"]
    assert [kept[f"a-{s}"]["chosen"] for s in (4, 5)] == [{"training.lr": 0.1}] * 2
    tried = {name: kept[name]["validation"]["pre"] for name in kept if name.startswith("tune")}
    assert tried["tune-a-0.1"] > tried["tune-a-1e-06"]
    assert kept["tune-a-0.1"]["seed"] == 4, "the first seed's, so that its test samples are not looked at"
    assert len([line for line in said if "by validation" in line]) == 2


def test_a_value_more_in_a_grid_costs_its_trials_and_runs_only_where_it_wins(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": "digits", "clients": 3, "rounds": 2, "partition": "iid", "method": "fedavg"}
    made: list[list[str]] = []
    for values in ((1e-3, 1e-6), (1e-3, 1e-6, 1e-5), (1e-3, 1e-6, 0.1)):
        case = Case("a-1", "t", {**settings, "seed": 1}, row="a", grid=Grid("training.lr", values, 1))
        same = Case("b-1", "t", {**settings, "seed": 1, "training": {"lr": 0.1}}, row="b")
        paper = Paper("grids", [case, same])
        PAPERS._found[f"{NAME}-more"] = lambda size, paper=paper: paper  # type: ignore[misc]
        try:
            out = tmp_path / f"{len(made)}"
            reproduce(f"{NAME}-more", "quick", out, only="a-*", say=[].append, results=tmp_path)
        finally:
            del PAPERS._found[f"{NAME}-more"]
        made.append(sorted(folder.name for folder in out.iterdir() if folder.is_dir()))
        kept = Results.read(results_file(tmp_path, f"{NAME}-more", "quick"))
        run = kept.run_of(case, paper)
        assert run is not None
        assert run["chosen"] == {"training.lr": 0.1 if 0.1 in values else 1e-3}
        alike = kept.run_of(same, paper)
        assert (alike is not None) == (0.1 in values), "a row with the same settings has the same run"
        assert alike is None or "chosen" not in alike
    assert made == [["a-1", "tune-a-0.001", "tune-a-1e-06"], ["tune-a-1e-05"], ["a-1", "tune-a-0.1"]]


def test_a_choice_may_rest_on_several_seeds(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": "digits", "clients": 3, "rounds": 2, "partition": "iid", "method": "fedavg"}
    grid = Grid("training.lr", (0.1, 0.2), 1, seeds=2)
    cases = [Case(f"a-{s}", "t", {**settings, "seed": s}, row="a", grid=grid) for s in (7, 5, 6)]
    paper = Paper("grids", cases)
    trials = paper.trials(cases[0])
    assert [(trial.name, trial.seed) for trial in trials] == [
        ("tune-a-0.1", 5), ("tune-a-0.1-seed-6", 6), ("tune-a-0.2", 5), ("tune-a-0.2-seed-6", 6),
    ]  # fmt: skip
    scores = (0.5, 0.9, 0.8, 0.7)
    runs = {
        trial.name: {"settings": digest_of(trial.identity), "validation": {"pre": score}}
        for trial, score in zip(trials, scores, strict=True)
    }
    assert Results(runs=runs).choice(cases[0], paper) == 0.2, "0.75 in the mean, 0.7 with 0.1"
    del runs["tune-a-0.1-seed-6"]
    assert Results(runs=runs).choice(cases[0], paper) is None


def test_the_same_seed_has_the_same_test_samples_with_and_without_validation_samples() -> None:
    """So a choice on validation samples cannot have seen the test samples."""
    from sparsona.prepare import prepare

    settings = {"method": "fedavg", "data": "digits", "clients": 3, "seed": 4, "split": {"use": "train", "test": 0.2}}
    found = []
    for share in (0.0, 0.2):
        prepared = prepare({**settings, "split": {"use": "train", "test": 0.2, "validation": share}})
        found.append({k: own.test.tolist() for k, own in prepared.setup.federation.splits.items()})
    assert found[0] == found[1]


def test_other_seeds_are_run_and_kept_apart(tmp_path: Path) -> None:
    reproduce(NAME, "quick", tmp_path / "runs", "short", lambda text: None, results=tmp_path)
    before = (tmp_path / f"{NAME}-quick.json").read_text()
    reproduce(NAME, "quick", tmp_path / "more", "short", lambda text: None, results=tmp_path, seeds_from=11)
    assert (tmp_path / f"{NAME}-quick.json").read_text() == before
    found = Results.read(results_file(tmp_path, NAME, "quick", 11)).runs["short"]
    assert found["seed"] == 11
    assert found["accuracy"] != json.loads(before)["runs"]["short"]["accuracy"]
    assert left(NAME, "quick", "short", tmp_path, 11).names == {}
    assert left(NAME, "quick", "short", tmp_path, 12).names == {"short": ["short"]}


def test_other_seeds_are_shifted_together() -> None:
    for name in ("fedpse", "plga", "pfednet"):
        paper = PAPERS.get(name)("quick")
        first = min(case.seed for case in paper.cases)
        moved = paper.with_seeds_from(21).cases
        assert [case.seed - 21 for case in moved] == [case.seed - first for case in paper.cases]
        assert {json.dumps({**case.settings, "seed": 0}, sort_keys=True) for case in moved} == {
            json.dumps({**case.settings, "seed": 0}, sort_keys=True) for case in paper.cases
        }


def test_longer_runs_decide_a_verdict_where_there_are_any(tmp_path: Path) -> None:
    for size, only in (("quick", "short"), ("day", "long"), ("whole", "other")):
        reproduce(NAME, cast(Size, size), tmp_path / size, only, lambda text: None, results=tmp_path)
    text = card([NAME], tmp_path, f"{BEGIN}\n{END}\n")
    assert text.count("### Claims") == 1
    assert "| it is short | yes | quick, yes: 2 rounds |" in text, "nobody else has run it"
    for size in ("day", "whole"):
        reproduce(NAME, cast(Size, size), tmp_path / size, "short", lambda text: None, results=tmp_path)
    assert "| it is short | yes | whole, yes: 4 rounds; day, yes: 3 rounds; quick, yes" in card([NAME], tmp_path, text)


def test_a_card_is_made_of_kept_results_and_keeps_its_text(tmp_path: Path) -> None:
    reproduce(NAME, "quick", tmp_path / "runs", "short", lambda text: None, results=tmp_path)
    text = card([NAME], tmp_path, f"# Card\n\nWords.\n\n{BEGIN}\nold\n{END}\n\nMore.\n")
    assert text.startswith("# Card\n\nWords.")
    assert text.endswith("More.\n")
    assert "old" not in text
    assert "| it is short | yes | 2 rounds |" in text
    assert card([NAME], tmp_path, text) == text
    with pytest.raises(InputError, match="no lines"):
        card([NAME], tmp_path, "# Card")


def test_a_page_lists_the_claims_that_it_names(tmp_path: Path) -> None:
    reproduce(NAME, "quick", tmp_path / "runs", "short", lambda text: None, results=tmp_path)
    begin, end = HEADLINES
    page = f"Words.\n\n{begin}\n| claim | verdict | evidence |\n|---|---|---|\n| it is short | | |\n{end}\n"
    text = card([NAME], tmp_path, page)
    assert f"`{NAME}`: 1 claims: 1 yes." in text
    assert "| it is short | yes | quick: 2 rounds |" in text
    assert card([NAME], tmp_path, text) == text
    assert "| it is short | not run | |" in card([NAME], tmp_path / "none", text)
    with pytest.raises(InputError, match="no claim 'it is long'"):
        card([NAME], tmp_path, text.replace("it is short", "it is long"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["fedpse", "fedspa", "pfedgate", "pfednet", "plga", "spfl"])
def test_every_claim_can_be_left_open_with_its_reason_and_its_cost(name: str, size: Size) -> None:
    paper = PAPERS.get(name)(size)
    texts = [claim.text for claim in paper.claims]
    assert len(set(texts)) == len(texts)
    for claim in paper.claims:
        found = claim.check({})
        assert found.note, claim.text
        assert (found.word == "not run") == bool(claim.cost), f"{claim.text}: a count needs no run, all else has a cost"


ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "papers" / "results"
KEPT = [
    (name, size)
    for name in PAPERS.names()
    for size in SIZES
    if not name.startswith(("test", "fedthin", "pool")) and Results.read(results_file(RESULTS, name, size)).runs
]


@pytest.mark.parametrize(("name", "size"), KEPT)
def test_no_kept_run_is_lost(name: str, size: Size) -> None:
    """A case whose settings, or whose choice, changed would not find its kept run."""
    paper, kept = PAPERS.get(name)(size), Results.read(results_file(RESULTS, name, size))
    cases = {case.name: case for case in paper.cases}
    lines = [line for line in kept.runs if not line.startswith(("tune-", MEASURED))] if cases else []
    assert [line for line in lines if line not in cases or not kept.run_of(cases[line], paper)] == []


@pytest.mark.parametrize(("name", "size"), KEPT)
def test_no_claim_asks_for_a_certain_seed(name: str, size: Size) -> None:
    """Other seeds are judged as the usual ones are."""
    paper, kept = PAPERS.get(name)(size), Results.read(results_file(RESULTS, name, size))
    runs = runs_of(paper, kept)
    moved = {
        row: own if row.startswith(MEASURED) else {seed + 10: run for seed, run in own.items()}
        for row, own in runs.items()
    }
    assert [claim.check(moved) for claim in paper.claims] == [claim.check(runs) for claim in paper.claims]


@pytest.mark.parametrize(("name", "size"), KEPT)
def test_what_a_grid_varies_makes_a_difference(name: str, size: Size) -> None:
    """FedMask once chose among learning rates that it does not read."""
    paper, kept = PAPERS.get(name)(size), Results.read(results_file(RESULTS, name, size))
    for case in {case.of: case for case in paper.cases if case.grid}.values():
        found = [kept.find(trial.name, trial.identity) for trial in paper.trials(case)]
        if all(found):
            read = ("validation", "accuracy", "bytes")
            assert len({json.dumps([run[key] for key in read]) for run in found if run}) > 1, case.of


def test_pfednet_and_its_rivals_have_the_same_budget_and_no_setting_is_refused() -> None:
    """L2GD may not step further than to the mean."""
    cases = PAPERS.get("pfednet")("quick").cases
    tuned = {case.of: case.grid for case in cases if case.grid is not None}
    assert len(tuned) == 21
    assert {(len(grid.values), grid.rounds, grid.seeds, grid.point) for grid in tuned.values()} == {(12, 20, 3, "pre")}
    for case in cases:
        if case.settings["method"] == "l2gd" and case.grid is not None:
            for value in case.grid.values:
                options = case.grid.applied(case.settings, value)
                step = options["training"]["lr"] * options["options"]["lam"] / options["options"]["p"]
                assert step < 1, (case.name, value)


def test_seeds_of_a_row_differ_in_nothing_else() -> None:
    for name in ("fedpse", "fedspa"):
        rows: dict[str, list[Case]] = {}
        for case in PAPERS.get(name)("quick").cases:
            rows.setdefault(case.of, []).append(case)
        assert {len(own) for own in rows.values()} == {1, 3}
        for own in rows.values():
            assert [case.seed for case in own] == [1, 2, 3][: len(own)]
            assert len({json.dumps({**case.settings, "seed": 0}, sort_keys=True) for case in own}) == 1
            assert own[0].name == own[0].of


@pytest.mark.parametrize("name", ["fedpse", "fedspa", "pfedgate", "plga", "spfl"])
def test_a_day_has_the_rows_that_it_names_and_the_whole_has_them_too(name: str) -> None:
    day, whole = (
        {case.of for case in PAPERS.get(name)(size).cases} for size in (cast(Size, "day"), cast(Size, "whole"))
    )
    own = {row for row in day if row.endswith(("-closed", "-lr-0.1"))}  # the whole starts closed, and tunes its studies
    assert day - own < whole
    module = import_module(f"sparsona_papers.{name}" + ("" if name in ("plga", "spfl") else ".plan"))
    named = module.MAIN if name == "plga" else module.DAY
    for row in named:
        assert any(own == row or own.endswith(f"-{row}") for own in day), row
    for case in PAPERS.get(name)("day").cases:
        build(case.settings, case.name)


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`reproduce` keeps its results beside the runs unless told where; `card` writes them into a card."""
    from typer.testing import CliRunner

    from sparsona.cli import app

    monkeypatch.chdir(tmp_path)
    shell = CliRunner()
    words = ["reproduce", NAME, "--size", "quick", "--only", "short", "--engine", "inprocess"]
    assert shell.invoke(app, words).exit_code == 0
    here = tmp_path / "runs" / f"reproduce-{NAME}-quick"
    assert (here / f"{NAME}-quick.json").exists()
    assert shell.invoke(app, [*words, "--results", str(tmp_path / "kept"), "--tables"]).exit_code == 0
    assert not (tmp_path / "kept").exists(), "nothing was run"
    (tmp_path / "card.md").write_text(f"# Card\n\n{BEGIN}\n{END}\n")
    assert shell.invoke(app, ["card", "card.md", NAME, "--results", str(here)]).exit_code == 0
    assert "| it is short | yes |" in (tmp_path / "card.md").read_text()


CARDS = {"fedpse": ["fedpse"], "fedthin": ["fedthin"], "fedspa": ["fedspa"], "pfedgate": ["pfedgate"],
         "pfednet": ["pfednet"], "pool": ["pool"], "spfl-plga": ["spfl", "plga"]}  # fmt: skip


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_what_the_kept_results_say(name: str) -> None:
    """Every run that was kept and every claim's verdict, also an unfavourable one, stands in the card, and no other."""
    text = (ROOT / "papers" / "cards" / f"{name}.md").read_text()
    assert card(CARDS[name], RESULTS, text) == text, f"sparsona card papers/cards/{name}.md {' '.join(CARDS[name])}"


@pytest.mark.parametrize("name", [name for name in CARDS if name not in ("fedthin", "pool")])
def test_a_page_is_short_and_says_what_the_kept_results_say(name: str) -> None:
    text = (ROOT / "docs" / "papers" / f"{name}.md").read_text()
    assert len(text.splitlines()) <= 60
    assert card(CARDS[name], RESULTS, text) == text, f"sparsona card docs/papers/{name}.md {' '.join(CARDS[name])}"


def test_fedthins_page_has_the_numbers_of_its_card() -> None:
    page, text = ((ROOT / folder / "fedthin.md").read_text() for folder in ("docs/papers", "papers/cards"))
    found = text.partition("## FedThin, preregistered")[2]
    numbers = [
        tuple(map(float, three)) for three in re.findall(r"([-+][\d.]+) \(([-+][\d.]+) to ([-+][\d.]+)\)", found)
    ]
    rows = [line.split("|")[2:4] for line in page.splitlines() if " points |" in line]
    assert len(rows) == 11
    for verdict, evidence in rows:
        middle, low, high = map(float, re.findall(r"[-+][\d.]+", evidence))
        assert any(all(abs(a - b) < 0.06 for a, b in zip(one, (middle, low, high), strict=True)) for one in numbers)
        assert verdict.strip() == ("yes" if low > 0 else "no" if high < 0 else "within noise")
    said = page.partition("Of the 14 rivals")[2]
    words = {"none": 0, "three": 3, "eight": 8}
    for pattern, told in (
        (r"larger against (\d+) of 14 rivals", r"larger than that of (\w+) with all clients and of (\w+) with a fifth"),
        (r"Not inferior\*\* to (\d+) of 14 rivals", r"not inferior by 0.5 points to (\w+) and to (\w+) of"),
    ):
        (two,) = re.findall(told, " ".join(said.split()))
        assert [words[one] for one in two] == [int(one) for one in re.findall(pattern, found)]
    assert re.findall(r"tasks: ([\d.]+)% with", found) == re.findall(r"([\d.]+) %", said.partition("##")[0])


def test_every_paper_has_a_card() -> None:
    papers = {paper for names in CARDS.values() for paper in names}
    assert papers == {name for name in PAPERS.names() if not name.startswith("test")}
