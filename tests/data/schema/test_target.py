"""What a target may be learnt as: whole numbers are not guessed to be classes."""

from __future__ import annotations

import numpy as np
import pytest

from sparsona.data.schema.columns import Columns, Format
from sparsona.data.schema.rows import understand
from sparsona.data.schema.table import Table
from sparsona.data.schema.target import infer
from sparsona.errors import DataError


@pytest.mark.parametrize("rows", [25, 250, 10**6])
def test_more_than_twenty_whole_numbers_of_a_table_are_asked_about(rows: int) -> None:
    with pytest.raises(
        DataError, match=f"holds 25 different whole numbers in {rows} training rows; pass --task classif"
    ):
        infer("auto", "whole", "days", 25, rows)
    assert infer("classification", "whole", "days", 25, rows) == "classification"
    assert infer("regression", "whole", "days", 25, rows) == "regression"


def test_twenty_are_classes_and_so_are_labels_of_images() -> None:
    assert infer("auto", "whole", "days", 20, 25) == "classification"
    assert infer("auto", "whole", "y", 100, 1000, table=False) == "classification"
    with pytest.raises(DataError, match="holds 100 different whole numbers"):
        infer("auto", "whole", "y", 100, 999, table=False)


def test_texts_are_classes_unless_they_are_names() -> None:
    assert infer("auto", "text", "town", 100, 200) == "classification"
    with pytest.raises(
        DataError, match="holds 100 different texts in 199 training rows; pass --task classification, or"
    ):
        infer("auto", "text", "town", 100, 199)


@pytest.mark.parametrize("kind", ["int64", "csv"])
def test_classes_with_more_digits_than_a_number_holds_are_asked_about(kind: str) -> None:
    ids = [str(2**60 + 1), str(2**60 + 2)] * 5
    y = np.array(ids) if kind == "csv" else np.array(ids).astype(np.int64)
    raw = frozenset({"y"}) if kind == "csv" else frozenset[str]()
    table = Table("a", "a.csv", {"x": np.arange(10.0) % 4, "y": y}, raw=raw).read(Format())
    line = "a.csv, row 0, column 'y': 1152921504606846977 has more digits than a number holds; pass --categorical y"
    with pytest.raises(DataError, match=line):
        understand(table, Columns(target=("y",)))
    named = understand(table, Columns(target=("y",), categorical=("y",)))
    assert np.unique(named.target).tolist() == sorted(set(ids))


def test_the_kind_of_a_target_tells_the_task() -> None:
    assert infer("auto", "whole", "label", classes=2, rows=100) == "classification"
    assert infer("auto", "decimal", "y", classes=0, rows=100) == "regression"
