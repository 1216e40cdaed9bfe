"""Which data sets there are, where they are looked for, and what is said when they are absent."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from sparsona import data
from sparsona.data import DATASETS, Source, Store, uci
from sparsona.errors import DataError, InputError

NAMES = [
    "cifar-10",
    "cifar-100",
    "covtype",
    "digits",
    "emnist",
    "fashion-mnist",
    "femnist",
    "folder",
    "heart-disease",
    "imdb",
    "mnist",
    "npz",
]
PUBLISHED = sorted(set(NAMES) - {"digits", "npz", "folder"})


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without data sets."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPARSONA_DATA", raising=False)
    return tmp_path


@pytest.fixture
def small_hospitals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uci, "HOSPITALS", dict.fromkeys(uci.HOSPITALS, ("", 0, 1)))


def write_hospitals(folder: Path, age: int) -> None:
    folder.mkdir(parents=True)
    for hospital in uci.HOSPITALS:
        (folder / f"processed.{hospital}.data").write_text(f"{age},1,1,145,233,1,2,150,0,2.3,3,0,6,0\n")


def test_all_data_sets_are_registered_under_their_files_names() -> None:
    assert set(NAMES) <= set(DATASETS.names())
    for name, source in DATASETS:
        if name in NAMES:
            assert source.name == name
            assert source.about
            assert source.licence


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown data set 'mnits'; did you mean 'mnist'"):
        data.load("mnits")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_missing_set_says_where_it_was_looked_for_and_what_to_do(nowhere: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        data.load(name)
    message = str(caught.value)
    assert str(nowhere / "home" / ".cache" / "sparsona" / name) in message
    assert f"sparsona data get {name}" in message or "leaf" in message
    assert "\n" not in message
    assert not data.describe(name).present


@pytest.mark.usefixtures("small_hospitals")
def test_the_variable_comes_before_the_cache_and_root_before_both(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, age in (("home/.cache/sparsona", 30), ("chosen", 40), ("root", 50)):
        write_hospitals(nowhere / place / "heart-disease", age)
    assert data.load("heart-disease").inputs[0, 0] == 30
    monkeypatch.setenv("SPARSONA_DATA", str(nowhere / "chosen"))
    assert data.load("heart-disease").inputs[0, 0] == 40
    assert data.load("heart-disease", nowhere / "root").inputs[0, 0] == 50
    shutil.rmtree(nowhere / "chosen")
    assert data.load("heart-disease").inputs[0, 0] == 30
    with pytest.raises(DataError, match=re.escape(str(nowhere / "elsewhere" / "heart-disease"))):
        data.load("heart-disease", nowhere / "elsewhere")


def test_one_missing_file_of_several_is_named(nowhere: Path) -> None:
    write_hospitals(nowhere / "root" / "heart-disease", 30)
    (nowhere / "root" / "heart-disease" / "processed.cleveland.data").unlink()
    with pytest.raises(DataError, match=r"processed\.cleveland\.data"):
        data.load("heart-disease", nowhere / "root")


@pytest.mark.usefixtures("nowhere")
def test_debians_copy_of_fashion_mnist_is_found() -> None:
    store = Store.of(DATASETS.get("fashion-mnist"))
    assert Path("/usr/share/datasets/fashion-mnist") in store.folders


def test_a_folder_in_place_of_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "covtype" / "covtype.data.gz").mkdir(parents=True)
    with pytest.raises(DataError, match="is not here"):
        data.load("covtype", tmp_path)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "covtype").mkdir()
    (tmp_path / "covtype" / "covtype.data.gz").write_bytes(b"")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"cannot read .*covtype.data.gz: Permission denied"):
        data.load("covtype", tmp_path)


def test_describe_tells_size_and_presence(tmp_path: Path) -> None:
    absent = data.describe("heart-disease", tmp_path)
    assert (absent.source.name, absent.present, absent.source.size) == ("heart-disease", False, 39570)
    assert absent.folder == tmp_path / "heart-disease"
    write_hospitals(tmp_path / "heart-disease", 30)
    assert data.describe("heart-disease", tmp_path).present
    assert data.describe(DATASETS.get("digits"), tmp_path).present
    assert data.describe("npz:some/path.npz", tmp_path).present
    assert data.describe("femnist", tmp_path).source.size is None
    assert data.describe("emnist:letters", tmp_path).source.size == 561753746


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_can_be_downloaded_has_a_checksum(name: str) -> None:
    source: Source = DATASETS.get(name)
    for file in source.files:
        if file.urls:
            assert len(file.sha256) == 64 or len(file.md5) == 32
            assert file.size
            assert all(url.startswith(("https://", "http://")) for url in file.urls)
        else:
            assert source.by_hand


def test_the_checksums_are_those_of_the_copies_here() -> None:
    """Of all sets that lie here as published; our covtype is compressed anew and our imdb is a selection."""
    import hashlib

    checked = 0
    for name in ("mnist", "fashion-mnist", "heart-disease"):
        store = Store.of(DATASETS.get(name))
        for file in store.source.files:
            path = store.find(file.name)
            if path is not None and path.name == file.name:
                assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256, path
                assert path.stat().st_size == file.size
                checked += 1
    if not checked:
        pytest.skip("mnist, fashion-mnist and heart-disease are not on this machine")
