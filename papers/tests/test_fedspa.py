"""FedSpa's plan and claims: the paper's own rows can be built and run, and each test of a claim can fail."""

from __future__ import annotations

import gzip
import re
import struct
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from sparsona import data
from sparsona.data.dataset import Array
from sparsona.experiment import build
from sparsona.models._build import build_model
from sparsona_papers._command import call_of
from sparsona_papers._differences import RowAt
from sparsona_papers._paper import Case, Size
from sparsona_papers._registry import PAPERS
from sparsona_papers._results import Results
from sparsona_papers._verdicts import Check, Verdict, level
from sparsona_papers.fedspa.checks import (
    LADDER,
    as_fast,
    falling,
    fewer_and_above,
    fewer_numbers,
    inside,
    never_reaches,
    operations,
    rounds_to,
    sooner,
    sooner_to_best,
)
from sparsona_papers.fedspa.plan import COMMAND, ORIGINALS, cases, original_of
from sparsona_papers.reproduce import reproduce

GOAL = 0.85


def run(pre: float = 0.5, **more: Any) -> dict[str, Any]:
    """A kept run; its test samples are many, so that a point decides."""
    return {"metric": "accuracy", "accuracy": {"pre": {"mean": pre}}, "test_samples": 10**6, **more}


def counted(rounds: float | None) -> dict[str, Any]:
    return {} if rounds is None else {"extra": {f"rounds to {GOAL:.2f}": rounds}}


def told(check: Check, mine: list[float | None], other: list[float | None]) -> tuple[str, str]:
    rows = {"one": mine, "other": other}
    found = check({row: {s: counted(r) for s, r in enumerate(own, 1)} for row, own in rows.items()})
    return found.word, found.note


def test_it_is_sooner_only_where_three_seeds_or_more_say_so() -> None:
    check = sooner("one", "other", GOAL)
    assert told(check, [20.0, 25.0, 20.0], [45.0, 40.0, 40.0]) == (
        "yes",
        "rounds: 20 and 45, 25 and 40, 20 and 40: +20 ± 12",
    )
    assert told(check, [45.0, 40.0, 40.0], [20.0, 25.0, 20.0])[0] == "no"
    assert told(check, [20.0, 25.0], [45.0, 40.0])[0] == "within noise", "two seeds"
    assert told(check, [0.0, 50.0, 50.0], [45.0, 45.0, 45.0])[0] == "no", "one never gets there, the others later"
    assert told(check, [45.0, 45.0, 45.0], [0.0, 0.0, 0.0])[0] == "yes"
    assert told(check, [20.0, 50.0, 20.0], [45.0, 45.0, 45.0])[0] == "within noise", "seeds disagree"
    assert told(check, [10.0, 35.0, 20.0], [60.0, 40.0, 25.0])[0] == "within noise", "seeds differ much"
    assert told(check, [40.0] * 3, [40.0] * 3)[0] == "within noise", "no difference"
    assert told(check, [42.0] * 3, [45.0] * 3)[0] == "within noise", "less than the rounds between measurements"
    assert told(check, [20.0, 0.0, 20.0], [45.0, 0.0, 0.0])[0] == "within noise", "neither gets there with one seed"
    assert told(check, [0.0, 0.0], [0.0, 0.0])[0] == "not run", "too short to tell"
    assert told(check, [20.0], [None])[0] == "not run", "nobody has looked"
    assert told(check, [None, 20.0, 20.0, 20.0], [45.0] * 4)[0] == "yes", "seeds that both have"


def test_one_seed_of_sampled_clients_decides_nothing() -> None:
    for mine, other in ((25.0, 20.0), (20.0, 45.0), (0.0, 45.0), (40.0, 40.0)):
        for check in (sooner("one", "other", GOAL), as_fast("one", "other", GOAL)):
            word, note = told(check, [None, mine], [15.0, other])
            assert (word, note.endswith("one seed of sampled clients")) == ("within noise", True)
    assert never_reaches("one", GOAL)({"one": {1: counted(0.0)}}).word == "within noise"


def test_the_claims_on_fashion_mnist_count_the_rounds_of_their_rows() -> None:
    claims = [claim for claim in PAPERS.get("fedspa")("day").claims if claim.text.startswith("C3: fashion-mnist")]
    claim = next(own for own in claims if "85%" in own.text and "than fedavg" in own.text)
    rows = {"fedspa-dst": (20.0, 25.0, 20.0), "fedavg": (45.0, 40.0, 40.0)}
    runs = {f"fashion-mnist-0.3-{row}": dict(enumerate(map(counted, own), 1)) for row, own in rows.items()}
    assert claim.check(runs) == Verdict("yes", "rounds: 20 and 45, 25 and 40, 20 and 40: +20 ± 12")
    assert len(claims) == 4


def test_as_fast_means_that_the_interval_is_narrow() -> None:
    check = as_fast("one", "other", GOAL)
    assert told(check, [100.0, 101.0, 102.0], [100.0, 101.0, 101.0])[0] == "yes"
    assert told(check, [150.0, 151.0, 152.0], [100.0, 101.0, 101.0])[0] == "no"
    assert told(check, [100.0, 150.0, 80.0], [100.0, 101.0, 101.0])[0] == "within noise"
    assert told(check, [0.0, 0.0], [100.0, 101.0])[0] == "no", "one never gets there"
    assert told(check, [0.0, 100.0], [100.0, 101.0])[0] == "within noise"


def test_never_is_never_with_any_seed() -> None:
    for rounds, word in (((0.0, 0.0), "yes"), ((5.0, 9.0), "no"), ((0.0, 9.0), "within noise"), ((), "not run")):
        assert never_reaches("one", GOAL)({"one": dict(enumerate(map(counted, rounds)))}).word == word
    assert never_reaches("one", GOAL)({"one": {1: {"extra": {"best": 0.7}}, 2: {"extra": {"best": 0.8}}}}).word == "yes"


def test_rounds_to_the_best_of_a_rival() -> None:
    def curve(*reached: tuple[float, float]) -> dict[str, Any]:
        return {"extra": {"best": reached[-1][0]} | {f"rounds to {goal:.2f}": rounds for goal, rounds in reached}}

    check = sooner_to_best("one", "other")
    rival = curve((0.40, 50.0), (0.45, 900.0))
    fast, slow = curve((0.40, 40.0), (0.45, 240.0), (0.60, 600.0)), curve((0.40, 40.0))
    assert check({"one": {1: fast, 2: fast}, "other": {1: rival, 2: rival}}).note == "rounds: 240 and 900, 240 and 900"
    assert check({"one": dict.fromkeys((1, 2, 3), slow), "other": dict.fromkeys((1, 2, 3), rival)}).word == "no"
    assert check({"one": {1: fast}, "other": {1: counted(40.0)}}).word == "not run", "an old line has no best"
    assert rounds_to(slow, 0.45) == 0.0
    assert rounds_to({}, 0.45) is None
    assert {0.40, 0.50, 0.55, 0.70, 0.75, 0.80, 0.85} < set(LADDER)


def test_orders_levels_and_shares() -> None:
    rows = {"a": {1: run(0.6)}, "b": {1: run(0.7)}, "c": {1: run(0.5)}}
    assert inside(["a", "b", "c"])(rows).word == "yes"
    assert inside(["b", "a", "c"])(rows).word == "no"
    assert falling({0.2: "b", 0.4: "a", 0.6: "c"})(rows).word == "yes"
    assert falling({0.2: "a", 0.4: "b", 0.6: "c"})(rows).word == "no"
    for limit, word in ((0.11, "yes"), (0.09, "no"), (0.1, "within noise")):
        assert (
            level(RowAt("b"), RowAt("a"), limit)(rows).word == level(RowAt("a"), RowAt("b"), limit)(rows).word == word
        )
    assert level(RowAt("a"), RowAt("d"), 0.1)(rows).note == "missing: d"
    sent = {row: {1: run(pre, paper_bytes={"up": n, "down": n})} for row, pre, n in (("a", 0.9, 5), ("b", 0.8, 9))}
    assert fewer_numbers("a", "b", 0.56)(sent).word == "yes"
    assert fewer_numbers("a", "b", 0.5)(sent) == Verdict("no", "up: 0.5556 of the other's; down: 0.5556 of the other's")
    assert fewer_and_above("a", "b")(sent).word == "yes"
    assert fewer_and_above("b", "a")(sent).note.startswith("numbers: "), "it sends more"
    assert fewer_and_above("a", "b")(sent | {"b": {1: {**sent["b"][1], **run(0.95)}}}).note.startswith("accuracy: ")


def test_what_is_counted_is_what_the_paper_prints() -> None:
    counted = {claim.text: claim.check({}) for claim in PAPERS.get("fedspa")("quick").claims if not claim.cost}
    assert {found.word for found in counted.values()} == {"yes"}
    assert [found.note for text, found in counted.items() if "resnet18" in text] == ["15.4% fewer", "34.9% fewer"]
    assert operations("cifar-100", 0.5).training < 0.8 * operations("cifar-100").training
    assert operations("cifar-100", 0.5, uniform=True).training == pytest.approx(0.5 * 2500, rel=1e-4)


def test_a_command_is_that_of_the_shortest_size_which_has_the_rows() -> None:
    command = COMMAND.of_rows
    assert "--size quick" in command("fashion-mnist-iid-rsm-different")
    assert command("fashion-mnist-iid-uniform") == ("`sparsona reproduce fedspa --only 'fashion-mnist-iid-uniform'`")
    mine, rivals = "fashion-mnist-0.3-fedspa-dst", ("fashion-mnist-0.3-fedavg", "fashion-mnist-0.3-local")
    assert "--size day" in command(mine, rivals[0], seeds=2, at_least="day")
    assert "--size" not in command(mine, rivals[1], seeds=2, at_least="day"), "a day has one seed of it"
    assert command("paper-cifar-100-B-ditto").endswith("`, after `sparsona data get cifar-100`")


@pytest.mark.parametrize("size", get_args(Size))
def test_every_command_runs_rows_that_its_size_has(size: Size) -> None:
    names = [case.name for case in cases(size)]
    for claim in PAPERS.get("fedspa")("quick").claims:
        if f"`{call_of('fedspa', size)} --only" in claim.cost:
            for pattern in re.findall(r"'([^']+)'", claim.cost):
                assert any(fnmatch(name, pattern) for name in names), claim.cost


def test_different_masks_are_tested_where_the_paper_speaks_of_them() -> None:
    texts = [claim.text for claim in PAPERS.get("fedspa")("quick").claims if "DST is slightly better" in claim.text]
    assert len([text for text in texts if "fashion-mnist, IID" in text or "fashion-mnist, 0.5" in text]) == 4
    assert not [text for text in texts if "0.3" in text]
    assert {"fashion-mnist-iid-different", "fashion-mnist-0.5-different"} < {case.of for case in cases("quick")}


def test_the_papers_own_rows_can_be_built() -> None:
    found = list(cases("paper"))
    names = [case.name for case in found]
    assert len(names) == len(set(names)) == 3 * 3 * 3 * 7 + 3 * 3 * 8
    others = {case.name for size in ("quick", "day", "whole") for case in PAPERS.get("fedspa")(size).cases}
    assert not others & set(names)
    rows: dict[str, list[Case]] = {}
    for case in found:
        experiment, _ = build(case.settings, case.name)
        assert (experiment.clients, experiment.schedule.sample, experiment.training.batch) == (100, 0.1, 128)
        assert (experiment.training.lr, experiment.training.decay, experiment.training.epochs) == (0.1, 0.998, 5)
        assert case.grid is None, "the rates are printed"
        rows.setdefault(case.of, []).append(case)
    assert {tuple(case.seed for case in own) for own in rows.values()} == {(1, 2, 3)}
    ditto = rows[original_of("cifar-10", "A", "ditto")][0].settings
    assert (ditto["partition"], ditto["model"], ditto["rounds"]) == ("dirichlet-clients:0.5", "vgg11-gn", 1000)
    assert (ditto["options"]["global_epochs"], ditto["options"]["personal_epochs"]) == (2, 3)
    letters = rows[original_of("emnist-letters", "B", "local")][0].settings
    assert (letters["partition"], letters["model"], letters["rounds"]) == ("dirichlet-clients:0.1", "lenet5", 400)
    assert rows[original_of("cifar-100", "B", "fedspa-dst")][0].paper == 0.669
    assert rows[original_of("cifar-100", "A", "uniform")][0].paper == 0.493


def idx(values: Array) -> bytes:
    head = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(head + values.astype(np.uint8).tobytes(), 1)


def write_letters(root: Path) -> None:
    """200 images to train on and 200 to test on, in the form of EMNIST's files."""
    rng, folder = np.random.default_rng(0), root / "emnist" / "gzip"
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        stem = f"emnist-letters-{part}"
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(idx(rng.integers(0, 256, (200, 28, 28))))
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(200) % 26 + 1))


def write_photographs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record in each batch of CIFAR-10, five in that of CIFAR-100."""
    monkeypatch.setattr("sparsona.data.cifar.RECORDS", {"train": 5, "test": 1})
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        path = root / "cifar-10" / "cifar-10-batches-bin" / f"{name}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(3073))
    for name, records in (("train", 5), ("test", 1)):
        path = root / "cifar-100" / "cifar-100-binary" / f"{name}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(3074 * records))


def test_the_papers_nets_fit_their_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_letters(tmp_path)
    write_photographs(tmp_path, monkeypatch)
    weights = {}
    for name, task in ORIGINALS.items():
        loaded = data.load(task.data, tmp_path)
        assert (loaded.inputs.shape[1:], loaded.classes) == (task.shape, task.classes)
        module = build_model(task.model, loaded.inputs.shape[1:], loaded.classes)
        weights[name] = sum(tensor.numel() for tensor in module.parameters())
    assert weights == {"emnist-letters": 439_096, "cifar-10": 9_231_114, "cifar-100": 11_220_132}


def test_a_row_of_the_papers_own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command for a cluster on a few made letters, in one round of its 400."""
    write_letters(tmp_path)
    monkeypatch.setenv("SPARSONA_DATA", str(tmp_path))
    monkeypatch.setitem(ORIGINALS, "emnist-letters", replace(ORIGINALS["emnist-letters"], rounds=1))
    row = original_of("emnist-letters", "B", "fedspa-dst")
    table = reproduce("fedspa", "paper", tmp_path / "out", row, lambda text: None, results=tmp_path, engine="inprocess")
    kept = Results.read(tmp_path / "fedspa-paper.json").runs[row]
    assert (kept["rounds"], kept["clients"], kept["test_samples"]) == (1, 100, 200)
    assert {"server", "best"} <= kept["extra"].keys()
    assert row in table.read_text()
