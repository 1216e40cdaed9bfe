from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsona.data.dataset import ClientSplit
from sparsona.data.schema.columns import Columns
from sparsona.data.schema.description import describe_rows
from sparsona.data.schema.rare import without_rare
from sparsona.data.schema.rows import Rows, understand
from sparsona.data.schema.table import Table
from sparsona.data.schema.text import text_in
from sparsona.errors import DataError

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
