"""Warnings about tables that can be read and are probably wrong: told where they are due, and nowhere else."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from bad_tables import CASES, Case, Frames, honest, numeric, write
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsona
from sparsona.data.dataset import ClientSplit, Dataset
from sparsona.data.doubts import DOUBTS, MOST, Doubt, Sites, doubts_of, listed
from sparsona.data.schema.roles import Task
from sparsona.data.schema.rows import Rows
from sparsona.errors import DataError
from sparsona.prepare import Prepared, prepare

SEX = {"categorical": ("sex",)}


def prepared(frames: Any, columns: dict[str, Any] | None = None, **settings: Any) -> Prepared:
    return prepare({"method": "local", "rounds": 1, "columns": columns or {}, **settings}, data=frames)


def kinds(made: Prepared) -> dict[str, list[Doubt]]:
    """The doubts by the file that finds them."""
    assert made.sites is not None
    found = {name.replace("-", "_"): list(find(made.sites)) for name, find in DOUBTS}
    return {name: doubts for name, doubts in found.items() if doubts}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.kind not in ("refused", "silent")], ids=lambda case: case.name
)
def test_a_bad_table_is_doubted(case: Case, tmp_path: Path) -> None:
    folder = write(tmp_path / "wards", case.frames())
    made = prepare({"method": "local", "data": f"folder:{folder}", "columns": SEX | case.options, "rounds": 1})
    found = kinds(made)
    assert set(found) == {case.kind}
    for doubt in found[case.kind]:
        assert 0 < doubt.rows <= 480 + 120
        assert doubt.fix
        assert doubt.why
        assert ".csv" in doubt.where or doubt.where == "all 4 clients"


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "refused"], ids=lambda case: case.name)
def test_some_bad_tables_are_refused(case: Case, tmp_path: Path) -> None:
    folder = write(tmp_path / "wards", case.frames())
    with pytest.raises(DataError):
        prepare({"method": "local", "data": f"folder:{folder}", "columns": SEX | case.options, "rounds": 1})


def test_the_corpus_is_large() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 40
    assert {case.kind for case in CASES} == {
        *(name.replace("-", "_") for name in DOUBTS.names()), "refused", "silent"
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("made", [honest, numeric])
def test_an_honest_table_is_not_doubted(made: Callable[[int], Frames], seed: int) -> None:
    assert listed(prepared(made(seed), SEX).doubts) == []


def sites_of(values: Any, label: Any, order: Any, count: int = 5) -> Frames:
    columns = [f"x{k}" for k in range(values.shape[1])]
    frame = pd.DataFrame(values, columns=columns).assign(label=label)
    return {f"c{k}": frame.iloc[mine] for k, mine in enumerate(np.array_split(order, count))}


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes", "digits"])
@pytest.mark.parametrize("skewed", [False, True])
def test_public_tables_are_not_doubted(name: str, skewed: bool) -> None:
    held = getattr(sklearn.datasets, f"load_{name}")()
    order = (
        np.argsort(held.data[:, 0], kind="stable") if skewed else np.random.default_rng(0).permutation(len(held.data))
    )
    columns = {"task": "regression"} if name == "diabetes" else {}
    assert listed(prepared(sites_of(held.data, held.target, order), columns).doubts) == []


def test_covertype_is_not_doubted(real: Callable[[str], Dataset]) -> None:
    data = real("covtype")
    assert data.groups is not None
    chosen = np.random.default_rng(0).permutation(len(data))[:4000]
    frames = {
        name: pd.DataFrame(data.inputs[mine].astype(float))
        .rename(columns=lambda k: f"x{k}")
        .assign(label=data.targets[mine])
        for number, name in enumerate(data.group_names)
        if len(mine := chosen[data.groups[chosen] == number])
    }
    assert listed(prepared(frames).doubts) == []


def test_of_heart_disease_the_cholesterol_of_zero_is_doubted(real: Callable[[str], Dataset]) -> None:
    real("heart-disease")
    (found,) = prepare({"method": "local", "data": "heart-disease", "rounds": 1}).doubts
    assert (found.column, found.rows) == ("chol", 172)
    assert "switzerland" in found.where
    assert "--missing" not in found.fix  # 0 is a value of other columns


def test_clients_that_a_partition_makes_are_not_compared() -> None:
    frame = pd.concat(honest().values(), ignore_index=True)
    one_class = prepared(frame, SEX, partition="sorted", clients=6)
    assert listed(one_class.doubts) == []


def test_images_are_not_doubted() -> None:
    assert prepare({"method": "local", "data": "digits", "rounds": 1}).doubts == ()


def test_a_split_by_patient_settles_the_doubt(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "a patient's rows on both sides, dropped")
    assert prepared(case.frames(), SEX | case.options).doubts
    assert not prepared(case.frames(), SEX, split={"by": "group:patient_id"}).doubts


def test_missing_settles_the_doubt() -> None:
    case = next(case for case in CASES if case.name == "-999 at one client")
    assert prepared(case.frames(), SEX).doubts
    assert not prepared(case.frames(), {**SEX, "missing": ("-999", "NA")}).doubts


def test_a_large_table_is_doubted_though_it_is_sampled() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(50, 9, (60_000, 3)).round(2)
    values[33_333, 1] = 1e9
    frame = pd.DataFrame(values, columns=list("abc")).assign(label=rng.integers(0, 2, 60_000))
    (found,) = prepared({"one": frame[:30_000], "two": frame[30_000:]}).doubts
    assert (found.column, found.rows, "two" in found.where) == ("b", 1, True)


def test_a_run_logs_its_doubts_and_keeps_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = next(case for case in CASES if case.name == "units x 1000 at one client")
    with caplog.at_level(logging.WARNING):
        sparsona.run("local", data=case.frames(), categorical="sex", rounds=1, out=tmp_path / "run")
    told = [record.getMessage() for record in caplog.records if "weight" in record.getMessage()]
    kept = json.loads((tmp_path / "run" / "about.json").read_text(encoding="utf-8"))["doubts"]
    assert told == kept
    assert len(kept) == 1


ODD = st.sampled_from([0.0, 1.0, -1.0, -999.0, 9999.0, 1e9, -1e30, 0.5, 37.0, float("nan")])
WORD = st.sampled_from(["", "a", "b", "yes", "TRUE", "1"])


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["classification", "regression", "multilabel"]))
def test_no_table_breaks_a_look(data: st.DataObject, sites: int, columns: int, task: Task) -> None:
    sizes = [data.draw(st.integers(3, 40)) for _ in range(sites)]
    total = sum(sizes)
    numbers = np.array(data.draw(st.lists(ODD, min_size=total * columns, max_size=total * columns)))
    words = np.array(data.draw(st.lists(WORD, min_size=total, max_size=total)), np.str_)
    target = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 7.0, -9.0]), min_size=total, max_size=total)))
    rows = Rows(
        "table", (*(f"x{k}" for k in range(columns)), "patient_id"), numbers.reshape(total, columns),
        {"patient_id": words}, frozenset(), None, ("y",), target[:, None], task=task, aside={"user": words},
    )  # fmt: skip
    parts = np.split(np.arange(total), np.cumsum(sizes)[:-1])
    splits = {f"c{k}": ClientSplit(f"c{k}", part[2:], part[:0], part[:2]) for k, part in enumerate(parts)}
    for doubt in doubts_of(Sites(rows, splits, task, natural=data.draw(st.booleans()))):
        assert 0 < doubt.rows <= total
        assert "\n" not in doubt.line


def test_a_long_list_is_cut() -> None:
    many = [Doubt("a.csv", f"x{k}", 1, "what", "why", "fix") for k in range(MOST + 3)]
    assert len(listed(many)) == MOST + 1
    assert "3 more" in listed(many)[-1]
