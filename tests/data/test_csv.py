"""Folders of csv files that cannot be used, or only with an option: the exact line that a user reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from bad_tables import disguised_files

from sparsona import data
from sparsona.data import Columns
from sparsona.data._csv import parse_csv
from sparsona.data.schema.columns import Format
from sparsona.data.schema.exchange import exchange
from sparsona.data.schema.roles import along_of
from sparsona.errors import DataError, InputError

GOOD = "age,weight,label\n31,70,0\n42,81,1\n55,64,0\n29,77,1\n"


@dataclass(frozen=True)
class Case:
    """Files by name, what the user declares, and the line that follows; `{}` is the folder."""

    name: str
    files: dict[str, str | bytes]
    line: str
    columns: Columns = field(default_factory=Columns)
    split: str = "random"


CASES = [
    Case(
        "Excel is told the separator",
        {"a": "sep=,\nage,label\n31,0\n"},
        "{}/a.csv, line 1: a line that tells Excel the separator is no header; remove it, and pass --separator where "
        "it is no comma",
    ),
    Case(
        "a comment before the header",
        {"a": "\n# exported 2026-03-01, by hand\nage,weight,label\n31,70,0\n"},
        "{}/a.csv, line 2: a comment is no header; remove all lines that begin with #",
    ),
    Case(
        "text in a number column",
        {"a": GOOD, "b": "age,weight,label\n31,70,0\n42,heavy,1\n"},
        "{}/b.csv, line 3, column 'weight': 'heavy' is not a number; correct it, leave it empty where it is missing, "
        "pass --missing '?,n/a,na,nan,none,null,heavy' where it means that, or --categorical weight "
        "(its values are sent to the server)",
    ),
    Case(
        "a zero byte in a number",
        {"a": "age,label\n31,0\n4\x002,1\n"},
        "{}/a.csv, line 3: 1 NUL byte, as in a file that was not written to its end; export it again, or remove them "
        "(tr -d '\\000')",
    ),
    Case(
        "a column of text",
        {"a": "sex,age,label\nm,31,0\nf,42,1\n"},
        "{}/a.csv, line 2, column 'sex': 'm' is text, as all of the column; pass --categorical sex to use it "
        "(its values are sent to the server), or --drop sex",
    ),
    Case(
        "a decimal comma",
        {"a": 'age,label\n"3,5",0\n4,1\n'},
        "{}/a.csv, line 2, column 'age': '3,5' has a decimal comma; pass --decimal , where all files are written so",
    ),
    Case(
        "dates",
        {"a": "adm,age,label\n2000-01-01,31,0\n2001-02-01,42,1\n"},
        "{}/a.csv, line 2, column 'adm': '2000-01-01' is a date; pass --drop adm, or --split time:adm",
    ),
    Case(
        "dates as Germans write them",
        {"a": "adm,age,label\n01.02.2000,31,0\n01.03.2001,42,1\n"},
        "{}/a.csv, line 2, column 'adm': '01.02.2000' is a date; pass --drop adm, or write it as 2026-03-01 and pass "
        "--split time:adm",
    ),
    Case(
        "a target in capitals",
        {"a": GOOD, "b": GOOD.upper()},
        "{}/b.csv has no column 'label', which --target names; its column 'LABEL' differs in capitals: write the names "
        "alike",
        Columns(target=("label",)),
    ),
    Case(
        "a feature in capitals",
        {"a": GOOD, "b": GOOD.replace("age", "Age")},
        "{}/b.csv has no column 'age', which {}/a.csv has; its column 'Age' differs in capitals: write the names alike",
    ),
    Case(
        "a name with a comma",
        {"a": '"ward, bed",age,label\nA,31,0\nB,42,1\n'},
        "{}/a.csv, line 2, column 'ward, bed': 'A' is text, as all of the column; pass --categorical '\"ward, bed\"' "
        "to use it (its values are sent to the server), or --drop '\"ward, bed\"'",
    ),
    Case(
        "a column is missing",
        {"a": GOOD, "b": "age,label\n31,0\n42,1\n"},
        "{}/b.csv has no column 'weight', which {}/a.csv has; add it (empty cells where it is unknown), "
        "or pass --drop weight",
    ),
    Case(
        "a column more",
        {"a": GOOD, "b": "age,weight,height,label\n31,70,180,0\n"},
        "{}/a.csv has no column 'height', which {}/b.csv has; add it (empty cells where it is unknown), "
        "or pass --drop height",
    ),
    Case(
        "the target is missing in one file",
        {"a": GOOD, "b": "age,weight,ill\n31,70,0\n"},
        "{}/b.csv has no column called label, target, class or y; pass --target with one of age, weight, ill",
    ),
    Case(
        "no column is called as a target is",
        {"a": "outcome,age\n0,31\n1,42\n"},
        "{}/a.csv has no column called label, target, class or y; pass --target with one of outcome, age",
    ),
    Case(
        "two columns are called as a target is",
        {"a": "label,age,class\n0,31,1\n1,42,2\n"},
        "{}/a.csv has columns 'label' and 'class'; pass --target with one of them",
    ),
    Case(
        "the target is called otherwise in another file",
        {"a": "age,label\n31,0\n", "b": "age,y\n31,0\n"},
        "{}/b.csv has the target y, {}/a.csv has label; call it the same for all, or pass --target",
    ),
    Case(
        "a target that is not there",
        {"a": GOOD},
        "{}/a.csv has no column 'lable', which --target names; did you mean 'label'?",
        Columns(target=("lable",)),
    ),
    Case(
        "a target is empty",
        {"a": "age,label\n31,0\n42,\n"},
        "{}/a.csv, line 3, column 'label': no target; fill it in or leave the line out",
    ),
    Case(
        "a target is NaN",
        {"a": "age,label\n31,0\n42,1\n50,NaN\n"},
        "{}/a.csv, line 4, column 'label': 'NaN' means that there is no target; fill it in, leave the line out, or say "
        "with --missing what means missing",
    ),
    Case(
        "a target is called none",
        {"a": "age,label\n31,mild\n42,None\n50,severe\n"},
        "{}/a.csv, line 3, column 'label': 'None' may be a name or mean that the value is missing; pass --missing "
        "'?,n/a,na,nan,null,None' where it is missing, or --missing '' where it is a name",
    ),
    Case(
        "a category is called NA",
        {"a": "land,age,label\nDE,31,0\nNA,42,1\n"},
        "{}/a.csv, line 3, column 'land': 'NA' may be a name or mean that the value is missing; pass --missing "
        "'?,n/a,nan,none,null,NA' where it is missing, or --missing '' where it is a name",
        Columns(categorical=("land",)),
    ),
    Case(
        "one label is a decimal",
        {"a": "age,label\n31,0\n42,1\n50,2.5\n61,1\n"},
        "{}/a.csv, line 4, column 'label': 2.5 is no whole number, as most are; correct it, or pass --task regression",
    ),
    Case(
        "labels are whole in one file, decimals in another",
        {"a": "age,label\n31,0\n42,1\n", "b": "age,label\n31,0.5\n42,1.5\n"},
        "{}/b.csv, column 'label' holds decimals, {}/a.csv holds whole numbers; pass --task regression or "
        "--task classification",
    ),
    Case(
        "labels are text in one file only",
        {"a": GOOD, "b": "age,weight,label\n31,70,no\n42,81,yes\n"},
        "{}/b.csv, column 'label' holds text, {}/a.csv holds whole numbers; write them alike, or pass "
        "--categorical label",
    ),
    Case(
        "labels are text and numbers in one file",
        {"a": "age,label\n31,0\n42,1\n50,unknown\n"},
        "{}/a.csv, line 4, column 'label': 'unknown' is text, '0' is a number; write the classes alike, or pass "
        "--categorical label",
    ),
    Case(
        "text, but a regression was asked for",
        {"a": "age,label\n31,0.5\n42,high\n"},
        "{}/a.csv, line 3, column 'label': 'high' is not a number; correct it, or leave --task regression out",
        Columns(task="regression"),
    ),
    Case(
        "an id as the target",
        {"a": "age,label\n" + "".join(f"{k % 30},{1000 + 7 * k}\n" for k in range(20, 60))},
        "target 'label' holds 40 different whole numbers in 40 training rows; pass --task classification or "
        "--task regression, or choose another --target",
    ),
    Case(
        "days in hospital as the target",
        {"a": "age,label\n" + "".join(f"{k % 50},{k % 25}\n" for k in range(2000))},
        "target 'label' holds 25 different whole numbers in 2000 training rows; pass --task classification or "
        "--task regression, or choose another --target",
    ),
    Case(
        "one class only",
        {"a": "age,label\n31,1\n42,1\n", "b": "age,label\n31,1\n"},
        "target 'label' has one class only in all training rows; choose another --target",
    ),
    Case("an empty file", {"a": GOOD, "b": ""}, "{}/b.csv is empty; give a header line and one line per row"),
    Case(
        "a header alone",
        {"a": GOOD, "b": "age,weight,label\n"},
        "{}/b.csv has a header and no rows; give one line per row, or leave the file out",
    ),
    Case(
        "no header",
        {"a": "31,70,0\n42,81,1\n"},
        "{}/a.csv, line 1: '31' is a number, not a name; write the names of the columns there",
    ),
    Case(
        "two columns of one name",
        {"a": "age,age,label\n31,70,0\n"},
        "{}/a.csv, line 1 has two columns 'age'; give each a name of its own",
    ),
    Case(
        "semicolons",
        {"a": "age;label\n31;0\n"},
        "{}/a.csv, line 1 is separated by semicolons; pass --separator ';' where all files are, or write it with "
        "commas",
    ),
    Case(
        "one column",
        {"a": "label\n0\n1\n"},
        "{}/a.csv, line 1 has only one column; separate at least one feature and the target by commas",
    ),
    Case(
        "a short line",
        {"a": "age,weight,label\n31,70,0\n42,1\n"},
        "{}/a.csv, line 3: 2 cells for 3 columns; correct the line",
    ),
    Case(
        "a quote that is not closed",
        {"a": 'age,label\n31,0\n"42,1\n'},
        "{}/a.csv, line 3: a quote begins here and does not end; correct the line",
    ),
    Case(
        "a long line",
        {"a": "age,label\n31,0\n3,5,1\n"},
        "{}/a.csv, line 3: 3 cells for 2 columns; correct the line (a cell that holds ',' needs quotes)",
    ),
    Case(
        "not text",
        {"a": b"age,label\n\xff\xfe,1\n"},
        "{}/a.csv, line 2: the byte 0xff is not UTF-8; pass --encoding, such as latin-1 or cp1252, or save the file in "
        "UTF-8",
    ),
    Case(
        "the index of pandas",
        {"a": ",age,label\n17,31,0\n3,42,1\n"},
        "{}/a.csv, column 1 has no name, as a pandas index has none; pass --drop 'Unnamed: 0', or write the file with "
        "index=False",
    ),
    Case(
        "a column that counts the rows",
        {"a": "row,age,label\n0,31,0\n1,42,1\n2,55,0\n3,29,1\n"},
        "{}/a.csv, column 'row' only counts the rows; pass --drop row, or name the --features to learn from",
    ),
    Case(
        "an infinite value",
        {"a": "age,label\n31,0\ninf,1\n"},
        "{}/a.csv, line 3, column 'age': inf is infinite or beyond float32; correct it, or leave it empty where it is "
        "missing",
    ),
    Case(
        "a value beyond float32",
        {"a": "age,label\n31,0\n1e300,1\n"},
        "{}/a.csv, line 3, column 'age': 1e+300 is infinite or beyond float32; correct it, or leave it empty where it "
        "is missing",
    ),
    Case(
        "an infinite target",
        {"a": "age,label\n31,0.5\n42,-inf\n"},
        "{}/a.csv, line 3, column 'label': the target -inf is infinite or beyond float32; correct it or leave the line "
        "out",
        Columns(task="regression"),
    ),
    Case(
        "a category by number here and by text there",
        {"a": "sex,label\n0,0\n1,1\n", "b": "sex,label\nm,0\nf,1\n"},
        "{}/b.csv, column 'sex' holds text, {}/a.csv holds numbers; write the categories alike",
        Columns(categorical=("sex",)),
    ),
    Case(
        "the target is dropped",
        {"a": GOOD},
        "column 'label' is the target and named by --drop; leave it out there",
        Columns(target=("label",), drop=("label",)),
    ),
    Case(
        "nothing to learn from",
        {"a": GOOD},
        "{}/a.csv has no feature besides the target 'label'; give at least one",
        Columns(drop=("age", "weight")),
    ),
    Case(
        "a split by a column that is not there",
        {"a": GOOD},
        "{}/a.csv has no column 'tme', which --split names; choose one of age, label, weight",
        split="time:tme",
    ),
    Case(
        "a split by a time that is missing",
        {"a": "t,age,label\n1,31,0\n,42,1\n"},
        "{}/a.csv, line 3, column 't': no value, and --split time:t needs one; fill it in or leave the line out",
        split="time:t",
    ),
    Case(
        "a split by what is no time",
        {"a": "t,age,label\nearly,31,0\nlate,42,1\n"},
        "{}/a.csv, column 't' holds neither numbers nor dates such as 2026-03-01T12:00; --split time:COLUMN needs them",
        split="time:t",
    ),
]


def load_and_agree(spec: str, case: Case) -> None:
    """As a run does it, all rows being training rows."""
    loaded = data.load(spec, columns=case.columns, along=along_of(case.split))
    assert loaded.rows is not None
    assert loaded.groups is not None
    exchange(loaded.rows, {name: np.flatnonzero(loaded.groups == k) for k, name in enumerate(loaded.group_names)})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_bad_folder_is_told_in_this_line(tmp_path: Path, case: Case) -> None:
    for stem, content in case.files.items():
        file = tmp_path / f"{stem}.csv"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as caught:
        load_and_agree(f"folder:{tmp_path}", case)
    assert str(caught.value) == case.line.replace("{}", str(tmp_path))


def test_there_are_at_least_thirty() -> None:
    assert len(CASES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)


def test_other_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the folder .*/none: No such file or directory; check the path"):
        data.load(f"folder:{tmp_path}/none")
    with pytest.raises(DataError, match=r"there is no .csv, .parquet or .npz file in"):
        data.load(f"folder:{tmp_path}")
    (tmp_path / "a.csv").write_text(GOOD)
    (tmp_path / "a.npz").write_bytes(b"")
    with pytest.raises(DataError, match="name the same client; rename one of them"):
        data.load(f"folder:{tmp_path}")
    with pytest.raises(InputError, match="digits is no table of columns"):
        data.load("digits", columns=Columns(target=("label",)))


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("\ufeffage,label\n31,0\n42,1\n", ("0", "1")),
        ("age,label\r\n31,0\r\n\r\n42,1\r\n", ("0", "1")),
        ("label,age\n1000000000,31\n7,42\n", ("7", "1000000000")),
        ("label,age\n-1,31\n1,42\n", ("-1", "1")),
        ("label,age\n1.0,31\n12.0,42\n", ("1", "12")),
        ("label,age\nyes,31\nno,42\n", ("no", "yes")),
    ],
    ids=["byte order mark", "windows", "huge ids", "negative", "whole floats", "texts"],
)
def test_what_looks_odd_and_is_not(tmp_path: Path, text: str, classes: tuple[str, ...]) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode())
    loaded = data.load(f"folder:{tmp_path}")
    assert loaded.class_names == classes
    assert loaded.inputs.tolist() == [[31], [42]]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        data.load(f"csv:{tmp_path}/none.csv")
    assert str(caught.value) == f"there is no file {tmp_path}/none.csv; check the path"


@pytest.mark.parametrize(("word", "content"), disguised_files().items())
def test_a_file_that_is_no_csv_is_named(tmp_path: Path, word: str, content: bytes) -> None:
    file = tmp_path / "north.csv"
    file.write_bytes(content)
    with pytest.raises(DataError) as told:
        parse_csv(file, Format())
    assert word in str(told.value)
    assert "--encoding" not in str(told.value)
    assert "\n" not in str(told.value)


def test_utf_16_without_a_mark_is_named(tmp_path: Path) -> None:
    file = tmp_path / "north.csv"
    file.write_bytes("age,label\n1,0\n2,1\n".encode("utf-16-le"))
    with pytest.raises(DataError, match="--encoding utf-16-le"):
        parse_csv(file, Format())
    assert list(parse_csv(file, Format(encoding="utf-16-le")).columns) == ["age", "label"]
