from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsona.data.dataset import ClientSplit
from sparsona.data.schema.bounds import Bounds, check_declared, within, without_rare
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.description import describe_rows
from sparsona.data.schema.limits import text_in
from sparsona.data.schema.rows import Rows, understand
from sparsona.data.schema.table import Table
from sparsona.errors import DataError, InputError
from sparsona.prepare import prepare
from sparsona.testing.privacy import arrays

DECLARED: dict[str, Any] = {
    "target": ("ill",),
    "task": "classification",
    "classes": ("no", "yes"),
    "categorical": ("sex",),
    "bounds": ("age=0:120", "sex=f/m"),
}


def rows_of(age: list[float], sex: list[str], ill: list[str], **changes: Any) -> Rows:
    table = Table("a", "a.csv", {"age": np.array(age), "sex": np.array(sex), "ill": np.array(ill)})
    return within(understand(table, Columns(**{**DECLARED, **changes})))


ONE = rows_of([30.0, 50.0, 400.0], ["f", "m", "x"], ["no", "yes", "no"])


def test_rows_are_made_to_fit_one_by_one() -> None:
    assert ONE.numbers[:, 0].tolist() == [30.0, 50.0, 120.0]
    assert ONE.categories["sex"].tolist() == ["f", "m", ""]


def test_the_description_of_declared_columns_is_the_same_for_all_rows() -> None:
    other = rows_of([np.nan, 1.0, -9.0], ["m", "", "q"], ["yes", "yes", "yes"])
    told = [[part.tobytes() for part in arrays(describe_rows(rows, np.arange(3)))] for rows in (ONE, other)]
    assert told[0] == told[1]
    assert len(told[0]) > 4
    undeclared = rows_of([30.0, 50.0, 70.0], ["f", "m", "f"], ["no", "yes", "no"], bounds=())
    assert [part.tobytes() for part in arrays(describe_rows(undeclared, np.arange(3)))] != told[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bounds": ("age=0:120",)}, "bounds of sex"),
        ({"bounds": ()}, "bounds of age,sex"),
        ({"task": "auto"}, "task"),
        ({"classes": ()}, "classes"),
        ({"scaling": "own"}, "own depends"),
    ],
)
def test_what_would_be_read_off_the_rows_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        check_declared(rows_of([30.0, 50.0], ["f", "m"], ["no", "yes"], **changes))


def test_a_class_that_is_not_declared_is_refused() -> None:
    with pytest.raises(DataError, match="does not name"):
        describe_rows(rows_of([30.0, 50.0], ["f", "m"], ["no", "perhaps"]), np.arange(2))


@pytest.mark.parametrize("text", ["age", "age=9:1", "=0:1", "age=a:b", "age=0:inf"])
def test_other_texts_are_no_bounds(text: str) -> None:
    with pytest.raises(InputError, match="is none"):
        Bounds.of([text])


def test_a_table_trains_with_a_budget_once_its_columns_are_declared(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for ward in ("east", "west"):
        lines = [f"{rng.integers(20, 90)},{'fm'[i % 2]},{rng.choice(['no', 'yes'])}" for i in range(40)]
        (tmp_path / f"{ward}.csv").write_text("\n".join(["age,sex,ill", *lines]) + "\n")
    settings = {"method": "fedavg", "data": f"folder:{tmp_path}", "rounds": 2, "privacy": {"noise": 1.0}}
    columns = {**DECLARED, "bounds": ["age=0:120", "sex=f/m"]}
    found = prepare({**settings, "columns": columns})
    (schema,) = {repr(schema.features) for schema in found.agreement.schemas.values()}
    assert "60.0" in schema
    with pytest.raises(InputError, match="declare columns"):
        prepare({**settings, "columns": {**columns, "bounds": []}})


NONE = np.zeros(0, np.int64)


def whole(rows: Rows) -> ClientSplit:
    return ClientSplit("a", np.arange(len(rows)), NONE, NONE)


def table_of(wards: list[str], ages: list[float], labels: list[str], **columns: object) -> Rows:
    table = Table("a", "a.csv", {"ward": np.array(wards), "age": np.array(ages), "label": np.array(labels)})
    return understand(table, Columns(categorical=("ward",), **columns))  # type: ignore[arg-type]


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d", ""]), min_size=12, max_size=60),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_no_category_and_no_missing_flag_of_few_rows_is_described(wards, least, random) -> None:  # type: ignore[no-untyped-def]
    ages = [random.choice([1.0, 2.0, float("nan")]) for _ in wards]
    rows = table_of(wards, ages, ["x", "y"] * (len(wards) // 2) + ["x"] * (len(wards) % 2))
    told = describe_rows(without_rare(rows, [whole(rows)], least), whole(rows).train)
    assert set(json.loads(text_in(told, "categories"))["ward"]) == {
        w for w in set(wards) - {""} if wards.count(w) >= least
    }
    known = sum(age == age for age in ages)
    missing = len(ages) - known
    assert told.numbers("inputs.known").tolist() == [0 if known < least else len(ages) if missing < least else known]
    assert bool(told.numbers("missing")[0]) == (known < least or missing >= max(least, 1))


def test_one_row_is_enough_unless_more_are_asked_for() -> None:
    rows = table_of(["a", "b"], [1.0, float("nan")], ["x", "y"])
    assert without_rare(rows, [whole(rows)], 1) is rows


def test_what_is_rare_is_so_in_the_rows_to_train_on() -> None:
    """A category that a client's test rows have often, and its training rows rarely, stays unknown in both."""
    rows = table_of(["a", "a", "a", "b", "b", "b"], [1.0] * 6, ["x"] * 6)
    split = ClientSplit("a", np.array([0, 1, 3]), NONE, np.array([2, 4, 5]))
    assert without_rare(rows, [split], 2).categories["ward"].tolist() == ["a", "a", "a", "", "", ""]


def test_a_rare_class_is_refused_unless_the_experiment_names_the_classes() -> None:
    wards, ages, labels = ["a"] * 9, [1.0] * 9, ["x"] * 7 + ["y"] * 2
    rows = table_of(wards, ages, labels)
    with pytest.raises(DataError, match="2 training rows have the class 'y'"):
        without_rare(rows, [whole(rows)], 3)
    declared = table_of(wards, ages, labels, classes=("z", "y", "x"))
    told = describe_rows(without_rare(declared, [whole(declared)], 3), whole(declared).train)
    assert json.loads(text_in(told, "classes")) == ["x", "y", "z"]
    unnamed = table_of(wards, ages, labels, classes=("x", "z"))
    with pytest.raises(DataError, match=r"holds 'y', which columns\.classes does not name"):
        describe_rows(unnamed, whole(unnamed).train)


def test_a_token_of_few_texts_is_the_unknown_word() -> None:
    block = np.array([[2, 3, 0], [2, 4, 0], [2, 4, 9]], np.int32)
    table = Table("a", "a.npz", {"y": np.array([0.0, 1.0, 1.0])}, block=block)
    rows = understand(table, Columns(target=("y",), inputs="tokens", classes=("0", "1")))
    found = without_rare(rows, [whole(rows)], 2)
    assert found.block is not None
    assert found.block.tolist() == [[2, 1, 0], [2, 4, 0], [2, 4, 1]]
    assert describe_rows(found, whole(rows).train).integer("largest") == 4
