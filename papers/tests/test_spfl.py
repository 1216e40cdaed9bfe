"""The runs of SPFL's and PLGA's tables: they are well-formed experiments claim names rows that exist and a
command that runs them, and claims are judged by means over seeds."""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from sparsona.data import load
from sparsona.data.mnist import EMNIST
from sparsona.experiment import build
from sparsona.methods.spfl import ServerState
from sparsona.models._build import build_model
from sparsona.report.curves import Mark
from sparsona.runs.records import ClientRecord
from sparsona_papers._command import together
from sparsona_papers._differences import RowAt, extra
from sparsona_papers._paper import SIZES, Case, Paper, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers._results import Results, results_file
from sparsona_papers._runs import server_state
from sparsona_papers._verdicts import Verdict, gains
from sparsona_papers.plga.drawings import at_second, draw_rounds, equal_seconds
from sparsona_papers.plga.held import held
from sparsona_papers.plga.plan import raw
from sparsona_papers.reproduce import reproduce
from sparsona_papers.spfl.checks import beyond, some_client
from sparsona_papers.spfl.drawings import by_client, draw_clients, draw_similarity
from sparsona_papers.spfl.plan import CLASSES, COMMAND, GAMMA, VARIANTS, cases
from sparsona_papers.spfl.readings import TABLE_8, mean_cosine

BOTH = pytest.mark.parametrize("name", ["spfl", "plga"])
SHAPES = {"emnist": ((1, 28, 28), 47), "mnist": ((1, 28, 28), 10), "cifar-10": ((3, 32, 32), 10),
          "cifar-100": ((3, 32, 32), 100)}  # fmt: skip


@BOTH
@pytest.mark.parametrize("size", SIZES)
def test_every_case_is_an_experiment(name: str, size: Size) -> None:
    paper = PAPERS.get(name)(size)
    assert len({case.name for case in paper.cases}) == len(paper.cases)
    for case in paper.cases:
        assert case.name.endswith(f"-{case.seed}")
        if case.seed == 1:
            experiment, _ = build(case.settings)
            assert experiment.clients == (6 if "6-clients" in case.name else 10)


@BOTH
def test_seeds_of_a_row_differ_in_nothing_else(name: str) -> None:
    for size in SIZES:
        rows: dict[str, list[dict[str, Any]]] = {}
        for case in PAPERS.get(name)(size).cases:
            rows.setdefault(case.of, []).append({**case.settings, "seed": 0})
        assert all(own.count(own[0]) == len(own) for own in rows.values())


@BOTH
def test_what_the_paper_trains_can_be_built(name: str) -> None:
    """The paper's net for every data set, and as many classes a client as the data set has at most."""
    for case in PAPERS.get(name)("paper").cases:
        data = str(case.settings["data"]).rpartition("/")[2].removesuffix("-raw.npz")
        shape, classes = SHAPES[data]
        net = build_model(case.settings["model"], shape, classes) if case.seed == 1 else None
        assert net is None or next(net.parameters()).shape[1] == shape[0]
        assert int(case.settings["partition"].split(":")[1]) <= classes
        assert len(case.grid.values) == 3 if case.grid else "lr" in case.settings["training"]
    assert len(EMNIST["balanced"][0]) == SHAPES["emnist"][1]


@BOTH
def test_every_claims_command_settles_it(name: str) -> None:
    """The rows that it names are there, and if all runs were equal they would say: equal is not above."""
    papers = {size: PAPERS.get(name)(size) for size in SIZES}
    texts = [[claim.text for claim in paper.claims] for paper in papers.values()]
    assert all(own == texts[0] for own in texts), "the same claims in every size"
    for claim in papers["quick"].claims:
        assert claim.check({}).word == "not run"
        found = re.search(rf"`sparsona reproduce {name}(?: --size (\w+))? --only '(.*)'`", claim.cost)
        if found is None:
            assert claim.text.startswith("contribution 3: stages"), claim.text
            continue
        size, pattern = found.groups()
        chosen = [case for case in papers[cast(Size, size or "whole")].cases if fnmatch(case.name, pattern)]
        assert chosen, claim.text
        said = claim.check(_equal(chosen))
        if claim.text.startswith("figure "):
            assert "says nothing of it in words" in said.note
        else:
            expected = ("yes",) if claim.text.startswith(ALIKE) else ("within noise", "no")
            assert said.word in expected, (claim.text, said)


ALIKE = ("C4", "C6", "4.1: the best method", "Table 1: FedUpdate within", "Table 8: fine-tuning gains")
"""How claims begin that hold of equal rows."""


def _equal(chosen: Iterable[Case]) -> dict[str, dict[int, Any]]:
    runs: dict[str, dict[int, Any]] = {}
    for case in chosen:
        runs.setdefault(case.of, {})[case.seed] = _summary(0.5)
    return runs


def _summary(pre: float) -> dict[str, Any]:
    scores = {point: {"mean": pre, "bottom_decile": pre} for point in ("pre", "post", "ft")}
    names = ("client", "cosine, base", "cosine, head", *(f"tuned, {column}" for column in TABLE_8))
    return {"metric": "accuracy", "accuracy": scores, "extra": dict.fromkeys(names, pre)}


def test_every_size_has_what_it_is_for() -> None:
    """What is not on this machine is in `paper` only, and what is there at the paper's length in `whole`."""
    for size in SIZES:
        found = {str(case.settings["data"]) for case in PAPERS.get("spfl")(size).cases}
        assert ({"emnist", "cifar-100"} <= found) == (size == "paper")
    for name in ("spfl", "plga"):
        of = {case.of for case in PAPERS.get(name)("paper").cases}
        assert not of & {case.of for case in PAPERS.get(name)("whole").cases}


def test_table_7_changes_one_thing_in_each_row() -> None:
    for size in ("quick", "paper"):
        by_name = {case.name: case for case in cases(size)}
        for data in ("mnist",):
            base = by_name[f"table7-{data}-noniid-base-1"].settings
            changed = {}
            for variant in VARIANTS:
                own = by_name[f"table7-{data}-noniid-{variant}-1"].settings
                changed[variant] = [key for key in own if own[key] != base[key]]
            assert changed == {"base": [], "few-classes": ["partition"], "many-classes": ["partition"],
                               "6-clients": ["clients"], "2-epochs": ["training"], "5-epochs": ["training"],
                               "one-round": ["rounds"]}  # fmt: skip
    printed = {case.name: case.paper for case in cases("paper")}
    assert printed["table7-cifar-10-noniid-2-epochs-3"] == 0.7223
    assert printed["table7-cifar-10-iid-6-clients-3"] == 0.7525
    assert printed["emnist-iid-spfl-1"] == 0.8953
    assert printed["cifar-100-noniid-fedavg-10"] == 0.1879
    assert all(few < usual < many for few, usual, many in CLASSES.values())


def test_spfl_has_its_control() -> None:
    """FedPer with SPFL's two steps and a plain mean, tuned like everyone."""
    for size in SIZES:
        by_name = {case.name: case for case in PAPERS.get("spfl")(size).cases}
        for data in ("emnist", "cifar-100") if size == "paper" else ("mnist", "cifar-10"):
            control, ours = by_name[f"{data}-noniid-fedper-2-1"], by_name[f"{data}-noniid-spfl-1"]
            assert control.settings["training"]["repeats"] == 2
            assert control.grid == ours.grid
        for table in {case.table for case in by_name.values()}:
            grids = [case.grid for case in by_name.values() if case.table == table and case.grid is not None]
            assert len({(len(grid.values), grid.rounds) for grid in grids}) <= 1, "the same budget"


def test_gamma_is_varied_around_what_the_other_rows_have() -> None:
    for size, data, usual in (("quick", "mnist", 5), ("whole", "mnist", 10), ("paper", "emnist", 10)):
        found = {c.name: c.settings["options"].get("gamma") for c in PAPERS.get("spfl")(cast(Size, size)).cases}
        for kind in ("iid", "noniid"):
            assert found[f"{data}-{kind}-spfl-1"] == found[f"{data}-{kind}-spfl-w-1"] == usual
            assert found[f"{data}-{kind}-spfl-often-1"] == GAMMA[usual]["spfl-often"] < usual
            assert found[f"{data}-{kind}-spfl-seldom-1"] == GAMMA[usual]["spfl-seldom"] > usual


def test_the_row_that_drops_has_stragglers_that_are_sometimes_on_time() -> None:
    found = {case.name: case.settings["schedule"] for case in PAPERS.get("plga")("quick").cases}
    assert found["digits-stored-fedavg-drop-1"] == {"stragglers": 5, "straggling": "absent"}
    assert found["digits-stored-fedavg-drop-all-1"] == found["digits-stored-lga-1"] == {"stragglers": 5}


def test_plga_is_run_in_both_orders_of_the_samples() -> None:
    sets = {"quick": ("digits", "mnist"), "day": ("mnist",), "whole": ("digits", "mnist", "cifar-10"),
            "paper": ("emnist", "cifar-100")}  # fmt: skip
    for size, names in sets.items():
        found = {c.name: c.settings["training"] for c in PAPERS.get("plga")(cast(Size, size)).cases}
        for order in ("stored", "shuffled"):
            for data in names:
                assert found[f"{data}-{order}-plga-1"]["order"] == order


def test_raw_pixels_are_read_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from sparsona.prepare import prepare

    monkeypatch.setenv("SPARSONA_DATA", str(tmp_path))
    case = next(c for c in PAPERS.get("plga")("quick").cases if c.name == "digits-raw-plga-1")
    assert case.settings["data"] == raw("digits") == f"npz:{tmp_path}/excerpts/digits-raw.npz"
    assert case.settings["training"]["order"] == "stored"
    data = prepare(case.settings).setup.federation.data
    assert (data.inputs == load("digits").inputs).all()
    assert data.inputs.dtype == np.float32
    assert not data.mean
    assert not data.std


def test_one_pattern_asks_for_several_rows() -> None:
    rows = ["emnist-iid-spfl-w", "emnist-iid-spfl-w-1"]
    assert COMMAND.of_rows(*rows, only=[together(rows)]) == (
        "`sparsona reproduce spfl --size paper --only 'emnist-iid-spfl-w*'`, after `sparsona data get emnist`"
    )


def _rows(**by_row: tuple[float, ...]) -> dict[str, dict[int, Any]]:
    return {row: {seed: _summary(value) for seed, value in enumerate(own)} for row, own in by_row.items()}


def test_some_client_is_better_off_if_the_mean_is_and_nobody_knows_if_it_is_not() -> None:
    check = some_client("alone", "together")
    assert check({}).word == "not run"
    assert check(_rows(alone=(0.8, 0.81), together=(0.5, 0.51))).word == "yes"
    worse = check(_rows(alone=(0.5, 0.51), together=(0.8, 0.81)))
    assert worse.word == "within noise"
    assert "neither tells" in worse.note
    runs = _rows(alone=(0.5, 0.51), together=(0.8, 0.81))
    for run in runs["together"].values():
        run["accuracy"]["pre"]["bottom_decile"] = 0.1
    assert check(runs).note.startswith("bottom decile +0.4")


def test_bounds() -> None:
    runs = _rows(a=(0.95, 0.951, 0.949), b=(0.949, 0.95, 0.948))
    base = extra("cosine, base")
    assert beyond("a", base, 0.9)(runs).word == "yes"
    assert beyond("a", base, 0.99)(runs).word == "no"
    assert beyond("c", base, 0.9)(runs) == Verdict("not run", "missing: c")
    assert gains(RowAt("a"), RowAt("b"), 0.01)(runs) == Verdict("yes", "+0.0010 ± 0.0000, 3 seeds")
    assert gains(RowAt("a"), RowAt("b"), 0.0001)(runs).word == "no"


def _idx(values: Any) -> bytes:
    return gzip.compress(
        bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    )


def _write_emnist(folder: Path, each: int) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part, labels in (("train", np.repeat(np.arange(47), each)), ("test", np.arange(47))):
        images = rng.integers(0, 256, (len(labels), 28, 28), np.uint8)
        for kind, values in (("images-idx3", images), ("labels-idx1", labels.astype(np.uint8))):
            (folder / f"emnist-balanced-{part}-{kind}-ubyte.gz").write_bytes(_idx(values))


def _run(name: str, chosen: list[Case], out: Path) -> dict[str, dict[str, Any]]:
    """Run changed cases of a paper with all that it reads and draws."""
    whole = PAPERS.get(name)("paper")
    PAPERS._found["test-cut"] = lambda size: replace(whole, cases=chosen, claims=(), tables={})
    try:
        reproduce("test-cut", "paper", out, say=lambda text: None, results=out, engine="inprocess")
    finally:
        del PAPERS._found["test-cut"]
    return Results.read(results_file(out, "test-cut", "paper")).runs


def test_a_case_of_the_paper_runs_from_its_files_to_its_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut to two clients of a few made images, and one round or two."""
    monkeypatch.setenv("SPARSONA_DATA", str(tmp_path / "data"))
    _write_emnist(tmp_path / "data" / "emnist" / "gzip", 20)
    spfl: Paper = PAPERS.get("spfl")("paper")
    cut: dict[str, Any] = {"clients": 2, "rounds": 1, "partition": "classes:3:own"}
    chosen = {case.name: case for case in spfl.cases}
    names = ("table7-emnist-noniid-base-1", "emnist-noniid-spfl-1", "emnist-noniid-fedavg-1")
    found = _run(
        "spfl",
        [replace(chosen[name], settings={**chosen[name].settings, **cut}, grid=None) for name in names],
        tmp_path / "spfl",
    )
    base = found[names[0]]
    assert base["extra"].keys() == {"cosine, base", "cosine, head", *(f"tuned, {column}" for column in TABLE_8)}
    assert found[names[1]]["extra"].keys() == {"cosine, base", "cosine, head"}
    assert found[names[2]]["extra"] == {}
    server = server_state(tmp_path / "spfl" / names[0], ServerState)
    assert base["extra"]["cosine, head"] == pytest.approx(mean_cosine(server.similarity.stages["head"]), rel=1e-5)
    pre = by_client(tmp_path / "spfl" / names[0])
    assert len(pre) == 2
    assert sum(pre.values()) / 2 == pytest.approx(base["accuracy"]["pre"]["mean"], rel=1e-5)
    assert (tmp_path / "spfl" / "spfl-clients.png").exists()

    plga = {case.name: case for case in PAPERS.get("plga")("paper").cases}["emnist-stored-plga-1"]
    schedule, training = {"stragglers": 1}, {"batch": 8, "steps": 1, "order": "stored", "lr": 0.001}
    settings = {**plga.settings, **cut, "rounds": 2, "schedule": schedule, "training": training}
    found = _run("plga", [replace(plga, settings=settings, grid=None)], tmp_path / "plga")
    assert 0 <= found["emnist-stored-plga-1"]["extra"]["client"] <= 1
    assert (tmp_path / "plga" / "plga-rounds.png").exists()


def test_without_runs_nothing_is_drawn(tmp_path: Path) -> None:
    for draw in (draw_clients, draw_similarity, draw_rounds):
        assert not draw(tmp_path, tmp_path / "drawing.png")
    assert by_client(tmp_path / "nothing") == {}


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
