"""A folder of files, one a client: none of them is left out unsaid."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sparsona import data
from sparsona.data import Columns
from sparsona.data._tables import dataset_of
from sparsona.data.folder import read_table
from sparsona.data.schema.table import Tables
from sparsona.errors import DataError

GOOD = "age,weight,label\n31,70,0\n42,81,1\n55,64,0\n29,77,1\n"


def test_an_ending_in_capitals_is_a_client_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / "b.CSV").write_text(GOOD)
    assert data.load(f"folder:{tmp_path}").group_names == ("a", "b")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("va.csv.gz", "{}/va.csv.gz is no .csv, .parquet or .npz file; unpack it, or move it out of the folder"),
        ("uri.xlsx", "{}/uri.xlsx is no .csv, .parquet or .npz file; save it as .csv, or move it out of the folder"),
        ("basel.txt", "{}/basel.txt is no .csv, .parquet or .npz file; save it as .csv, or move it out of the folder"),
        ("basel", "{}/basel is no .csv, .parquet or .npz file; save it as .csv, or move it out of the folder"),
    ],
)
def test_a_file_that_is_not_read_is_told(tmp_path: Path, name: str, line: str) -> None:
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / name).write_bytes(gzip.compress(GOOD.encode()))
    with pytest.raises(DataError) as caught:
        data.load(f"folder:{tmp_path}")
    assert str(caught.value) == line.replace("{}", str(tmp_path))


def test_a_folder_in_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.csv").write_text(GOOD)
    with pytest.raises(DataError) as caught:
        data.load(f"folder:{tmp_path}")
    line = f"{tmp_path}/more is a folder; put one file per client into {tmp_path} itself, or move it elsewhere"
    assert str(caught.value) == line


def test_what_can_be_nobodys_data_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(GOOD)
    for name in (".DS_Store", ".~lock.a.csv#", "~$a.xlsx", "README", "readme.txt", "notes.md", "Thumbs.db"):
        (tmp_path / name).write_text("nothing")
    (tmp_path / ".git").mkdir()
    assert data.load(f"folder:{tmp_path}").group_names == ("a",)


def test_a_column_is_dropped_that_not_all_have(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / "b.csv").write_text("age,label\n31,0\n42,1\n")
    loaded = data.load(f"folder:{tmp_path}", columns=Columns(drop=("weight",), categorical=("weight",)))
    assert loaded.rows is not None
    assert (loaded.rows.order, len(loaded)) == (("age",), 6)
    assert loaded.rows.dropped == {"weight": "--drop"}


def test_a_column_is_dropped_that_nobody_has(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(GOOD)
    with pytest.raises(DataError, match=r"a.csv has no column 'wieght', which --drop names; did you mean 'weight'\?"):
        data.load(f"folder:{tmp_path}", columns=Columns(drop=("wieght",)))
    (tmp_path / "b.csv").write_text(GOOD)
    with pytest.raises(DataError, match=r"none of the 2 tables has a column 'wieght', which --drop names; did you"):
        data.load(f"folder:{tmp_path}", columns=Columns(drop=("wieght",)))


def test_a_node_need_not_have_what_is_dropped(tmp_path: Path) -> None:
    """A node sees its own table only: the column may be another's."""
    (tmp_path / "b.csv").write_text("age,label\n31,0\n42,1\n")
    alone = Tables("b", (read_table(tmp_path / "b.csv", "b"),), owned=True)
    rows = dataset_of(alone, Columns(drop=("weight",))).rows
    assert rows is not None
    assert rows.order == ("age",)
