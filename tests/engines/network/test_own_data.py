from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sparsona.data.schema.columns import Columns
from sparsona.data.schema.rows import understand
from sparsona.data.schema.schema import Category, Number, Schema
from sparsona.data.schema.table import Table
from sparsona.engines.network.own_data import OwnFormat, check_fits, check_own, own_file
from sparsona.errors import DataError


def test_a_clients_file_is_found_by_its_name_also_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "va.CSV").write_text("age,ill\n")
    (tmp_path / "vale.csv").write_text("age,ill\n")
    assert own_file(tmp_path, "va") == tmp_path / "va.CSV"
    assert own_file(tmp_path / "vale.csv", "va") == tmp_path / "vale.csv", "a file that is named is taken as it is"
    (tmp_path / "ward%207%2Fb.csv").touch()
    assert own_file(tmp_path, "ward 7/b").name == "ward%207%2Fb.csv"
    (tmp_path / "va.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="holds 2 files of 'va', expected one of"):
        own_file(tmp_path, "va")
    with pytest.raises(DataError, match="holds 0 files of 'east'"):
        own_file(tmp_path, "east")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty; give a header line and one line per row"),
        (b"\n\n", "is empty; give a header line and one line per row"),
        (b"age,ill\n", "has a header and no rows; give one line per row"),
        (b"age;ill\n", "has a header and no rows; give one line per row"),
        (b"age\n5\n", "has only one column"),
        (b"age,ill\n5,1\n6\n", "line 3: 1 cells for 2 columns"),
        (b"age;ill\n5,5;1\n6\n", "line 3: 1 cells for 2 columns"),
        ("age;ill\n5;1\n6\n".encode("utf-16"), "line 3: 1 cells for 2 columns"),
        (b'age,ill\n5,"1\n6,0\n', "line 2: a quote begins here and does not end"),
    ],
)
def test_a_file_that_no_experiment_could_use_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "va.csv").write_bytes(content)
    for path in (tmp_path, tmp_path / "va.csv"):
        with pytest.raises(DataError, match=why):
            check_own(path, "va")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|", ":", " "])
def test_a_file_is_not_refused_for_how_it_is_written(separator: str, encoding: str, tmp_path: Path) -> None:
    """The experiment may say so, and is not known before a run."""
    rows = [["größe", "krank"], ["1.5", "ja"], ["-9", "nein"]]
    file = tmp_path / "va.csv"
    file.write_text("".join(f"{separator.join(row)}\n" for row in rows), encoding=encoding)
    check_own(file, "va")


def test_what_an_owner_says_of_its_file_is_held_against_it(tmp_path: Path) -> None:
    file = tmp_path / "va.csv"
    file.write_text("age,ill\n5,1\n")
    check_own(file, "va", OwnFormat(separator=","))
    with pytest.raises(DataError, match="separated by commas; --separator says semicolons"):
        check_own(file, "va", OwnFormat(separator=";"))
    with pytest.raises(DataError, match="is not in utf-16, as --encoding says"):
        check_own(file, "va", OwnFormat(encoding="utf-16"))


def test_files_that_are_not_csv_are_looked_at_too(tmp_path: Path) -> None:
    for name, why in (("va.npz", "is not a .npz file"), ("va.txt", "the name must end in"), ("va.csv", "there is no")):
        if name != "va.csv":
            (tmp_path / name).write_text("age,ill\n5,1\n")
        with pytest.raises(DataError, match=why):
            check_own(tmp_path / name, "va")
    np.savez(tmp_path / "ok.npz", x=np.zeros((4, 2)), y=np.arange(4))
    check_own(tmp_path / "ok.npz", "va")


@pytest.mark.parametrize("ill", ["yes", "no"])
@pytest.mark.parametrize("sex", ["f", "m"])
def test_a_schema_that_lacks_a_declared_name_is_refused_whether_or_not_rows_have_it(sex: str, ill: str) -> None:
    """Else the server would learn by the refusal whether one row has it, also with a privacy budget."""
    held = {"age": np.array([30.0, 40.0]), "sex": np.array(["f", sex]), "ill": np.array(["no", ill])}
    declared = Columns(
        ("ill",), task="classification", classes=("no", "yes"), categorical=("sex",), bounds=("age=0:99", "sex=f/m")
    )
    rows = understand(Table("a", "a.csv", held), declared)

    def agreed(values: tuple[str, ...], classes: tuple[str, ...]) -> Schema:
        features = Number("age", 50, 28, indicator=True), Category("sex", values)
        return Schema("classification", ("ill",), classes, features=features)

    check_fits(agreed(("f", "m"), ("no", "yes")), rows)
    with pytest.raises(DataError, match="sex lack 'm'"):
        check_fits(agreed(("f",), ("no", "yes")), rows)
    with pytest.raises(DataError, match="the target lack 'yes'"):
        check_fits(agreed(("f", "m"), ("no",)), rows)
