"""Tables: Covertype and the four hospitals."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from sparsona import data
from sparsona.data import uci
from sparsona.errors import DataError


def covtype_line(area: int, soil: int, label: int, first: int = 2596) -> str:
    binary = [int(k == area) for k in range(4)] + [int(k == soil) for k in range(40)]
    return ",".join(map(str, [first, 51, 3, 258, -6, 510, 221, 232, 148, 6279, *binary, label]))


def write_covtype(root: Path, text: str, zipped: bool = True) -> None:
    (root / "covtype").mkdir(exist_ok=True)
    name = "covtype.data.gz" if zipped else "covtype.data"
    (root / "covtype" / name).write_bytes(gzip.compress(text.encode()) if zipped else text.encode())


@pytest.mark.parametrize("zipped", [True, False])
def test_covtype_reads_rows_and_areas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    monkeypatch.setattr(uci, "ROWS", 3)
    lines = [covtype_line(0, 28, 5), covtype_line(3, 0, 1), covtype_line(2, 39, 7)]
    write_covtype(tmp_path, "\n".join(lines) + "\n", zipped)
    loaded = data.load("covtype", tmp_path)
    assert loaded.inputs.shape == (3, 54)
    assert loaded.inputs.dtype == np.float32
    assert loaded.inputs[0, :5].tolist() == [2596, 51, 3, 258, -6]
    assert loaded.targets.tolist() == [4, 0, 6]
    assert loaded.groups is not None
    assert [loaded.group_names[g] for g in loaded.groups] == ["rawah", "cache-la-poudre", "comanche-peak"]
    assert len(loaded.mean) == len(loaded.std) == 54


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([covtype_line(0, 1, 5)], "not 2 lines of 55 values"),
        ([covtype_line(0, 1, 5), covtype_line(0, 1, 5) + ",0"], "not 2 lines of 55 values"),
        ([covtype_line(0, 1, 5), covtype_line(0, 1, 5).replace("51", "x")], "not a whole number"),
        ([covtype_line(0, 1, 5), covtype_line(0, 1, 8)], "a class is not 1 to 7"),
        ([covtype_line(0, 1, 5), covtype_line(9, 1, 5)], "not in one wilderness area"),
    ],
)
def test_a_wrong_covtype_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], problem: str
) -> None:
    monkeypatch.setattr(uci, "ROWS", 2)
    write_covtype(tmp_path, "\n".join(lines))
    with pytest.raises(DataError, match=problem):
        data.load("covtype", tmp_path)


def test_a_truncated_covtype_is_told(tmp_path: Path) -> None:
    write_covtype(tmp_path, covtype_line(0, 1, 5))
    path = tmp_path / "covtype" / "covtype.data.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"covtype\.data\.gz is damaged.*too early"):
        data.load("covtype", tmp_path)


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(uci, "HOSPITALS", dict.fromkeys(uci.HOSPITALS, ("", 0, 2)))
    folder = tmp_path / "heart-disease"
    folder.mkdir()
    for k, hospital in enumerate(uci.HOSPITALS):
        lines = [f"{60 + k}.0,1.0,1,145,233,1,2,150,0,2.3,3,0,6,0", "35,1,4,?,0,?,0,130,1,.7,?,?,7,3"]
        (folder / f"processed.{hospital}.data").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_heart_disease_keeps_the_missing_missing(hospitals: Path) -> None:
    loaded = data.load("heart-disease", hospitals)
    assert loaded.inputs.shape == (8, 13)
    assert loaded.inputs.dtype == np.float32
    assert np.isnan(loaded.inputs[1]).nonzero()[0].tolist() == [3, 5, 10, 11]
    assert loaded.inputs[1, 4] == 0
    assert loaded.inputs[:, 0].tolist() == [60, 35, 61, 35, 62, 35, 63, 35]
    assert loaded.targets.tolist() == [0, 1] * 4
    assert loaded.groups is not None
    assert loaded.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert loaded.has_missing


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("63,1\n63,1\n", "not 2 lines of 14 values"),
        ("35,1,4,?,0,?,0,130,1,.7,?,?,7,3\n", "not 2 lines"),
        ("35,1,4,?,0,?,0,130,1,.7,?,?,7,ill\n" * 2, "could not convert"),
        ("35,1,4,?,0,?,0,130,1,.7,?,?,7,?\n" * 2, "a diagnosis is missing"),
    ],
)
def test_a_wrong_hospital_is_told(hospitals: Path, text: str, problem: str) -> None:
    (hospitals / "heart-disease" / "processed.va.data").write_text(text)
    with pytest.raises(DataError, match=rf"processed.va.data is damaged.*{problem}"):
        data.load("heart-disease", hospitals)
