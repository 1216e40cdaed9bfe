"""The cases of pFedGate's card can be built, its claims can be decided, and its drawing can be made."""

from __future__ import annotations

import gzip
import json
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.experiment import build
from sparsona.methods.pfedgate.blocks import Cut
from sparsona.models._build import build_model
from sparsona.prepare import prepare
from sparsona.runs.about import read_about
from sparsona.runs.directory import RunDirectory
from sparsona.runs.records import by_round
from sparsona.training.vector import FlatModule
from sparsona_papers._differences import Runs
from sparsona_papers._paper import SIZES, Case, Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers._results import Results, results_file
from sparsona_papers._verdicts import Claim
from sparsona_papers.pfedgate.checks import most_gain
from sparsona_papers.pfedgate.gates import gates, masks
from sparsona_papers.pfedgate.printed import TABLE_1, table_1
from sparsona_papers.pfedgate.readings import SHARES, read_run, rounds_to
from sparsona_papers.pfedgate.settings import ALL_RATES, DATA, FIXED, RATES
from sparsona_papers.reproduce import reproduce


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
    if size in ("whole", "paper"):
        assert methods >= {"fedem", "fedmd", "lg-fedavg"}
    assert {case.settings["seed"] for case in paper.cases} == {1, 2, 3}
    assert {claim.check({}).word for claim in paper.claims if claim.cost} == {"not run"}


def test_all_methods_have_the_same_budget_of_rates() -> None:
    for size in SIZES:
        grids = {case.of: case.grid for case in PAPERS.get("pfedgate")(size).cases if case.grid is not None}
        data = "emnist" if size == "paper" else "fashion-mnist"
        assert {f"{data}-local", f"{data}-pfedgate-0.3", f"{data}-fedrep"} <= set(grids)
        rounds, rates = 50 if size in ("whole", "paper") else 20, len(ALL_RATES) if size == "paper" else 5
        masked = {row: grids.pop(row) for row in list(grids) if "fedmask" in row}
        assert {(grid.key, len(grid.values)) for grid in masked.values()} <= {("options.score_lr", 4)}
        assert {(len(grid.values), grid.rounds) for grid in grids.values()} == {(rates, rounds)}


def test_a_study_is_compared_with_a_row_of_its_own_rate() -> None:
    """In short runs a study has the first rate, whatever validation images choose for the row that it changes."""
    for size in ("quick", "day"):
        paper = PAPERS.get("pfedgate")(size)
        of_pfedgate = [case for case in paper.cases if case.grid is None and case.settings["method"] == "pfedgate"]
        assert {case.settings["training"]["lr"] for case in of_pfedgate} == {RATES[0]}
        seeds: dict[str, set[int]] = {}
        for case in paper.cases:
            seeds.setdefault(case.of, set()).add(case.seed)
        for method in ("fedavg", "pfedgate-0.5"):
            assert seeds[f"fashion-mnist-{method}{FIXED}"] >= seeds[f"fashion-mnist-{method}-20%"]
        notes = {claim.text: claim.check({}).note for claim in paper.claims}
        for begins in ("C3:", "Table 3:", "Figure 5:", "C4:", "C5:", "C8:", "C9:"):
            own = [note for text, note in notes.items() if text.startswith(f"{begins} fashion-mnist")]
            assert own
            assert all(FIXED in note for note in own if "missing" in note)


def test_the_papers_own_data_nets_clients_and_rates() -> None:
    """Section H and table 7 of the paper. The data need not be here."""
    found: dict[str, dict[str, Case]] = {}
    for case in PAPERS.get("pfedgate")("paper").cases:
        found.setdefault(case.table.partition(",")[0], {}).setdefault(case.of, case)
    weights = {"emnist": 2_278_334, "femnist": 2_278_334, "cifar-10": 256_830, "cifar-100": 3_537_444}
    rates = {"emnist": (0.1, 0.1, 0.5), "femnist": (0.1, 0.05, 0.05), "cifar-10": (0.05, 1.5, 1.5),
             "cifar-100": (1.5, 1.5, 0.5)}  # fmt: skip
    assert {data: next(iter(rows.values())).settings["clients"] for data, rows in found.items()} == {
        "emnist": 100, "femnist": 539, "cifar-10": 100, "cifar-100": 50,
    }  # fmt: skip
    for data, rows in found.items():
        assert {f"{data}-{row}" for row in TABLE_1 if row != "fedavg-ft"} < set(rows)
        assert {case.settings["rounds"] for case in rows.values()} == {400}
        assert {case.settings["training"]["batch"] for case in rows.values()} == {128}
        (model,) = {case.settings["model"] for case in rows.values()}
        assert FlatModule(build_model(model, DATA[data].shape, DATA[data].classes)).layout.size == weights[data]
        gate = [rows[f"{data}-pfedgate-{density}"].settings["options"] for density in ("1", "0.5", "0.3")]
        assert tuple(options["gate_lr"] for options in gate) == rates[data]
        assert {options["gate_start"] for options in gate} == {0.0}
        assert rows[f"{data}-fedavg"].settings["evaluation"]["ft"], "FedAvg-FT"
    assert found["emnist"]["emnist-local"].settings["data"].endswith("emnist:byclass-81425.npz")
    assert found["femnist"]["femnist-local"].settings["partition"] == "groups"


def test_table_1_as_printed() -> None:
    for row, (*cells, average) in TABLE_1.items():
        for place in (0, 1):
            assert np.mean([cell[place] for cell in cells]) == pytest.approx(average[place], abs=0.011), row
    assert table_1().splitlines()[-3].startswith("| pfedgate-0.3 | 87.09, 82.52 | 86.75, 76.47 | 73.65, 64.39 |")
    assert "Table 1 of the paper, as printed" in PAPERS.get("pfedgate")("quick").tables


def test_blocks_of_channels_are_another_cut_where_they_are_studied() -> None:
    def cuts(model: str) -> list[tuple[int, ...]]:
        layout = FlatModule(build_model(model, (1, 28, 28), 10)).layout
        return [Cut.of(layout, 5, by_channel=by_channel).bounds for by_channel in (False, True)]

    equal, channels = cuts("leaf-cnn")
    assert equal != channels
    equal, channels = cuts("lenet5")
    assert equal == channels
    rows = {case.of: case.settings for case in PAPERS.get("pfedgate")("quick").cases}
    base, changed = (rows[f"leaf-0.5-start-3{end}"]["options"] for end in ("", "-channels"))
    assert changed == {**base, "split": "channel"}
    assert rows["leaf-0.5-start-3-channels"]["model"] == "leaf-cnn"


def made_up(cases: Iterator[Case]) -> Runs:
    """A result for every case, with all that a claim may look at."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    rng = np.random.default_rng(0)
    for case in cases:
        scores = {point: dict.fromkeys(("mean", "weighted", "bottom_decile"), 0.5 + rng.random() / 10)
                  for point in ("pre", "post", "ft")}  # fmt: skip
        extra = {"server_weighted": 0.4, "trained_weighted": 0.45, "trained_bottom": 0.3, "gates alike": 0.2,
                 "scales alike": 0.1, "client a": rng.random(), "client b": rng.random()}  # fmt: skip
        extra |= {f"rounds to {share:g}, {point}": 9 + case.seed for share in SHARES for point in ("pre", "post")}
        found.setdefault(case.of, {})[case.seed] = {
            "metric": "accuracy", "accuracy": scores, "new_clients": {"accuracy": scores}, "extra": extra, "flops": 7,
            "weights": 10, "clients": 3, "rounds": 2, "paper_bytes": {"up": 99, "down": 99}, "test_samples": 2000,
        }  # fmt: skip
    return found


def commands(claim: Claim) -> tuple[Size, list[str]]:
    """The size and the patterns of the command that would settle a claim."""
    named = re.search(r"sparsona reproduce pfedgate(?: --size (\w+))?", claim.cost)
    assert named is not None, claim.cost
    size: Any = named[1] or "whole"
    return size, re.findall(r"--only '([^']+)'", claim.cost) or ["*"]


@pytest.mark.parametrize("size", SIZES)
def test_the_command_of_a_claim_makes_the_rows_that_it_needs(size: Size) -> None:
    """But for what no command of ours can run, and for what benchmarks measure. A day's says what it lacks only."""
    known = {of: PAPERS.get("pfedgate")(of).cases for of in SIZES}
    for claim in PAPERS.get("pfedgate")(size).claims:
        if claim.cost and not claim.cost.startswith("no command") and "benchmarks" not in claim.cost:
            of, patterns = commands(claim)
            cases = known[of]
            for pattern in patterns:
                assert any(fnmatch(case.name, pattern) for case in cases), (claim.text, pattern)
            if of != "day":
                made = made_up(case for case in cases if any(fnmatch(case.name, pattern) for pattern in patterns))
                assert claim.check(made).word != "not run", (claim.text, claim.check(made).note)


def test_what_only_a_cluster_can_settle_stands_in_every_size() -> None:
    texts = [{claim.text: claim.cost for claim in PAPERS.get("pfedgate")(size).claims} for size in SIZES]
    own = {text for text, cost in texts[-1].items() if "--size paper" in cost}
    assert len(own) > 50
    for size, told in zip(SIZES, texts, strict=True):
        assert own <= set(told), size


def test_most_clients_gain() -> None:
    def run(*scores: float) -> dict[str, Any]:
        return {"extra": {f"client {i}": score for i, score in enumerate(scores)}}

    runs = {"a": {1: run(0.5, 0.6, 0.7), 2: run(0.5, 0.6, 0.7)}, "b": {1: run(0.4, 0.5, 0.8), 2: run(0.4, 0.5, 0.8)}}
    assert most_gain("a", "b")(runs).word == "yes"
    assert most_gain("b", "a")(runs).word == "no"
    assert most_gain("a", "c")(runs).note == "missing: c"


LETTERS = 62


def write_femnist(root: Path, writers: int, each: int) -> None:
    """LEAF's file with a few writers."""
    rng = np.random.default_rng(0)
    users = [f"f{i:04}_00" for i in range(writers)]
    own = {u: {"x": rng.random((each, 784)).round(3).tolist(), "y": rng.integers(0, LETTERS, each).tolist()}
           for u in users}  # fmt: skip
    (root / "femnist").mkdir(parents=True)
    (root / "femnist" / "all_data_0.json").write_text(json.dumps({"users": users, "user_data": own}))


def write_emnist(root: Path, each: int) -> None:
    """The publisher's files with a few images of every class."""
    (root / "emnist").mkdir(parents=True)
    labels = np.repeat(np.arange(LETTERS, dtype=np.uint8), each)
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 28, 28), np.uint8)
    for split in ("balanced", "byclass", "letters"):
        for part in ("train", "test"):
            for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
                content = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
                file = root / "emnist" / f"emnist-{split}-{part}-{kind}-ubyte.gz"
                file.write_bytes(gzip.compress(content + values.tobytes()))


def own_case(row: str) -> Case:
    return next(case for case in PAPERS.get("pfedgate")("paper").cases if case.of == row)


def test_a_case_of_the_papers_own_size_runs_from_its_data_to_its_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_femnist(tmp_path / "data", writers=4, each=10)
    monkeypatch.setenv("SPARSONA_DATA", str(tmp_path / "data"))
    case = own_case("femnist-pfedgate-0.3")
    settings = {**case.settings, "clients": 3, "rounds": 1, "training": {**case.settings["training"], "lr": 0.1}}
    short = Paper("short", [replace(case, settings=settings, grid=None)], extra=read_run)
    PAPERS._found["test-pfedgate-short"] = lambda size: short
    try:
        reproduce("test-pfedgate-short", "paper", tmp_path, say=lambda text: None, results=tmp_path, engine="inprocess")
    finally:
        del PAPERS._found["test-pfedgate-short"]
    run = Results.read(results_file(tmp_path, "test-pfedgate-short", "paper")).runs["femnist-pfedgate-0.3-1"]
    assert run["weights"] == 2_278_334
    assert run["clients"] == 3
    assert {"server", "server_weighted", "trained_weighted", "trained_bottom"} <= set(run["extra"])
    assert rounds_to(0.9)(run, "pre") == rounds_to(0.8)(run, "post") == 1


def test_a_tenth_of_emnist_is_an_excerpt_with_all_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_emnist(tmp_path, each=2)
    monkeypatch.setenv("SPARSONA_DATA", str(tmp_path))
    settings = own_case("emnist-pfedgate-0.5").settings
    setup = prepare({**settings, "clients": 3}).setup
    data = setup.federation.data
    assert (data.classes, len(data), data.inputs.shape[1:]) == (LETTERS, 4 * LETTERS, (1, 28, 28))
    assert 0.4 < data.mean[0] < 0.6, "scaled by what the clients agree on"
    assert setup.task.layout.size == 2_278_334


def test_readings_of_a_run(tmp_path: Path) -> None:
    """The server's model, the rounds to a share of the best score, and whether like labels make like gates."""
    options = {"density": 0.5, "paths": "one", "knapsack": "greedy"}
    settings = {"data": "digits", "clients": 5, "rounds": 6, "partition": "shards:2", "seed": 1}
    run = tmp_path / "cifar-10-pfedgate-0.5-1"
    sparsona.run("pfedgate", **settings, options=options, out=run)
    prepared = prepare({"method": "pfedgate", **settings, "options": options})
    found = read_run(RunDirectory(run), prepared)
    assert 0 <= found["server_weighted"] < found["trained_weighted"] <= 1, "an epoch without a gate helps it"
    assert all(-1 <= found[name] <= 1 for name in ("gates alike", "scales alike"))
    assert 1 <= found["rounds to 0.8, pre"] <= found["rounds to 0.9, pre"] <= 6
    assert len([name for name in found if name.startswith("client ")]) == 5
    tests = {name: client.test for name, client in read_about(run).clients.items()}
    curve = [
        np.average([own.test["pre"] for own in lines], weights=[tests[own.client] for own in lines])
        for lines in by_round(RunDirectory(run).lines()).values()
    ]
    assert found["rounds to 0.9, pre"] == 1 + next(i for i, score in enumerate(curve) if score >= 0.9 * max(curve))


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
