"""How files are written: separators, decimal signs, encodings, words for missing values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparsona import data
from sparsona.data import Columns
from sparsona.data._tables import dataset_of
from sparsona.data.folder import read_table
from sparsona.data.schema.columns import Format
from sparsona.data.schema.raw import encode_raw
from sparsona.data.schema.schema import Category, Number, Schema
from sparsona.data.schema.table import Tables
from sparsona.errors import DataError, InputError
from sparsona.experiment import build, to_toml
from sparsona.prepare import prepare

EUROPEAN = "größe;gewicht;label\n1,5;70;0\n1,75;-9;1\n"


@pytest.mark.parametrize(
    ("columns", "content"),
    [
        (Columns(separator=";", decimal=",", missing=("-9",)), EUROPEAN.encode()),
        (Columns(separator=";", decimal=",", missing=("-9",), encoding="latin-1"), EUROPEAN.encode("latin-1")),
        (Columns(separator=";", decimal=",", missing=("-9",), encoding="utf-16"), EUROPEAN.encode("utf-16")),
        (Columns(separator="tab", decimal=",", missing=("-9",)), EUROPEAN.replace(";", "\t").encode()),
    ],
    ids=["semicolons", "latin-1", "utf-16", "tabs"],
)
def test_a_european_file(tmp_path: Path, columns: Columns, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    loaded = data.load(f"folder:{tmp_path}", columns=columns)
    assert loaded.rows is not None
    assert loaded.rows.order == ("größe", "gewicht")
    assert np.array_equal(loaded.inputs, np.array([[1.5, 70], [1.75, np.nan]], np.float32), equal_nan=True)


@pytest.mark.parametrize(
    ("columns", "content", "line"),
    [
        (
            Columns(separator=";"),
            b"a,label\n1,0\n",
            "line 1 is separated by commas; --separator says semicolons; write",
        ),
        (
            Columns(decimal=","),
            b'a,label\n1.5,0\n"1,5",1\n',
            "line 2, column 'a': '1.5' has a decimal point, and --decimal says a comma; write all numbers alike",
        ),
        (
            Columns(),
            b'a,label\n"1,260",0\n',
            "'1,260' has a comma; pass --decimal , where it is the decimal sign, else",
        ),
        (Columns(encoding="latin-1"), "ä,label\n1,0\n".encode(), "a.csv is in UTF-8, and --encoding says iso8859-1"),
        (Columns(encoding="utf-16"), b"a,label\n1,0\n", "a.csv is not in utf-16, as --encoding says; save all"),
        (Columns(encoding="ascii"), b"a,label\n1,0\n\xe4,1\n", "line 3: the byte 0xe4 is not ASCII; check --encoding"),
        (Columns(), "a,label\n1,0\n".encode("utf-16"), "a.csv is in UTF-16; pass --encoding utf-16, or save it in"),
        (Columns(), b"a,label\r1,0\r\xfc,0\r", "line 3: the byte 0xfc is not UTF-8; pass --encoding, such as latin-1"),
        (
            Columns(missing=("x",)),
            b"a,label\n1,0\nNA,1\n",
            "line 3, column 'a': 'NA' is not a number; .*--missing x,NA where",
        ),
    ],
)
def test_a_file_that_is_written_otherwise_is_told(tmp_path: Path, columns: Columns, content: bytes, line: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=line):
        data.load(f"folder:{tmp_path}", columns=columns)


def test_a_line_is_the_one_in_which_its_record_begins(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('ward,a,label\n"room\n1",1,0\n"room\n2",x,1\n')
    with pytest.raises(DataError, match="line 4, column 'a': 'x' is"):
        data.load(f"folder:{tmp_path}", columns=Columns(categorical=("ward",)))
    (tmp_path / "a.csv").write_text('a,label\n1,0\n"2,0\n3,1\n4,1\n')
    with pytest.raises(DataError, match="line 3: a quote begins here and does not end"):
        data.load(f"folder:{tmp_path}")


def test_numbers_that_mean_missing_are_so_in_arrays() -> None:
    made = data.from_arrays(([[1, -9], [2, 3]], [0, 1]), columns=Columns(missing=("-9",)))
    assert np.array_equal(made.inputs, np.array([[1, np.nan], [2, 3]]), equal_nan=True)


def test_a_node_reads_as_the_experiment_says(tmp_path: Path) -> None:
    """A node opens its file before it looks at the columns: what they say must reach the file nevertheless."""
    (tmp_path / "b.csv").write_text("dose;label\n1,5;0\n-9;1\n")
    table = replace(read_table(tmp_path / "b.csv", "b"), owner="east")
    loaded = dataset_of(Tables("b", (table,), owned=True), Columns(separator=";", decimal=",", missing=("-9",)))
    assert loaded.group_names == ("east",)
    assert np.array_equal(loaded.inputs, [[1.5], [np.nan]], equal_nan=True)


def test_it_is_a_setting_and_travels_with_the_model(tmp_path: Path) -> None:
    rows = "".join(f"{k % 7},{k % 5};{k % 3}\n" for k in range(40))
    (tmp_path / "a.csv").write_text("größe;label\n" + rows)
    columns = {"separator": ";", "decimal": ",", "missing": "-9"}
    prepared = prepare({"method": "local", "data": f"folder:{tmp_path}", "columns": columns})
    assert 'separator = ";"\ndecimal = ","' in to_toml(prepared.experiment)
    schema = prepared.agreement.schemas["a"]
    again = Schema.from_json(schema.to_json())
    assert again.format.words == {"", "-9"}
    assert (again.format.separator, again.format.decimal) == (";", ",")
    found = encode_raw(again, {"größe": ["1,5", "-9"]})
    (size,) = again.features
    assert isinstance(size, Number)
    assert found[:, 0].tolist() == pytest.approx([(1.5 - size.mean) / size.std, 0.0])


def test_what_is_usual_leaves_no_trace_in_a_model() -> None:
    assert "format" not in Schema("classification", ("y",), features=(Number("a"), Category("b", ("u",)))).to_json()


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"separator": "ab"}, "one character separates columns, such as ; or tab"),
        ({"decimal": ";"}, "columns.decimal"),
        ({"encoding": "klingon"}, "encodings are utf-8, utf-16, latin-1, cp1252 and others"),
        ({"encoding": "zip"}, "encodings are utf-8"),
    ],
)
def test_a_format_that_there_is_not(columns: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build({"method": "local", "columns": columns})


def test_words_are_listed_as_names_are() -> None:
    assert build({"method": "local", "columns": {"missing": "-9, unknown"}})[0].columns.missing == ("-9", "unknown")
    assert build({"method": "local", "columns": {"missing": [-9, 99.5]}})[0].columns.missing == ("-9", "99.5")
    assert build({"method": "local", "columns": {"missing": ""}})[0].columns.missing == ()
    assert build({"method": "local"})[0].columns.missing is None
    assert Format(missing=()).words == {""}


def test_a_name_with_a_comma_is_quoted() -> None:
    assert build({"method": "local", "columns": {"drop": '"age, years",ill'}})[0].columns.drop == ("age, years", "ill")


@pytest.mark.parametrize(
    ("missing", "classes", "land"),
    [
        ((), ("mild", "none"), ["NA", "DE"]),
        (("na",), ("mild", "none"), ["", "DE"]),
    ],
)
def test_a_word_is_a_name_where_it_is_said(
    tmp_path: Path, missing: tuple[str, ...], classes: tuple[str, ...], land: list[str]
) -> None:
    (tmp_path / "a.csv").write_text("land,age,label\nNA,31,none\nDE,42,mild\n")
    loaded = data.load(f"folder:{tmp_path}", columns=Columns(missing=missing, categorical=("land",)))
    assert loaded.class_names == classes
    assert loaded.rows is not None
    assert loaded.rows.categories["land"].tolist() == land


def test_a_question_mark_is_no_name_and_words_among_numbers_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("land,bed,age,label\n?,NA,31,no\nDE,2,42,yes\n")
    loaded = data.load(f"folder:{tmp_path}", columns=Columns(categorical=("land", "bed")))
    assert loaded.rows is not None
    assert loaded.rows.categories["land"].tolist() == ["", "DE"]
    assert loaded.rows.categories["bed"].tolist() == ["", "2"]
