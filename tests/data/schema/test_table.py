"""Tables: codes are kept as they were written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sparsona import data
from sparsona.data import Columns
from sparsona.data.schema.roles import along_of
from sparsona.data.schema.table import Table
from sparsona.errors import DataError

CODES = "ward,age,label\n01,31,0\n1,42,1\n1e1,55,0\n10,29,1\n"


def test_codes_are_not_merged(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CODES)
    loaded = data.load(f"folder:{tmp_path}", columns=Columns(categorical=("ward",)))
    assert loaded.rows is not None
    assert loaded.rows.categories["ward"].tolist() == ["01", "1", "1e1", "10"]
    assert loaded.rows.numeric == frozenset()


def test_codes_here_and_numbers_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ward,age,label\n1,31,0\n10,42,1\n")
    (tmp_path / "b.csv").write_text("ward,age,label\n01,31,0\n10,42,1\n")
    with pytest.raises(
        DataError, match=r"b.csv, column 'ward' holds text, .*a.csv holds numbers; write the categories"
    ):
        data.load(f"folder:{tmp_path}", columns=Columns(categorical=("ward",)))


def test_numbers_are_one_category_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ward,age,label\n1,31,0\n10,42,1\n")
    (tmp_path / "b.csv").write_text("ward,age,label\n1.0,31,0\n10.00,42,1\n")
    rows = data.load(f"folder:{tmp_path}", columns=Columns(categorical=("ward",))).rows
    assert rows is not None
    assert rows.categories["ward"].tolist() == ["1", "10", "1", "10"]
    assert rows.numeric == {"ward"}


def test_long_numbers_are_codes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ward,age,label\n12345678901234567,31,0\n12345678901234568,42,1\n")
    rows = data.load(f"folder:{tmp_path}", columns=Columns(categorical=("ward",))).rows
    assert rows is not None
    assert rows.categories["ward"].tolist() == ["12345678901234567", "12345678901234568"]


def test_clients_groups_and_classes_are_not_merged_either(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text(CODES)
    spec = f"csv:{tmp_path / 'all.csv'}"
    assert data.load(spec, columns=Columns(client="ward")).group_names == ("01", "1", "10", "1e1")
    rows = data.load(spec, along=along_of("group:ward")).rows
    assert rows is not None
    assert rows.along is not None
    assert rows.along.tolist() == ["01", "1", "1e1", "10"]
    named = data.load(spec, columns=Columns(target=("ward",), categorical=("ward",)))
    assert named.class_names == ("01", "1", "10", "1e1")


def test_numbers_that_name_something_stay_apart() -> None:
    ids = np.array([2**60 + 1, 2**60 + 2, 2**60 + 1])
    table = Table("a", "the frame", {"id": ids, "dose": np.array([1.00000001, 1.00000002, 1.5])})
    assert table.names("id")[0].tolist() == ["1152921504606846977", "1152921504606846978", "1152921504606846977"]
    assert table.names("dose")[0].tolist() == ["1.00000001", "1.00000002", "1.5"]
    with pytest.raises(DataError, match="the frame, row 0, column 'id': 1152921504606846976 is a float64"):
        Table("a", "the frame", {"id": ids.astype(np.float64)}).names("id")
