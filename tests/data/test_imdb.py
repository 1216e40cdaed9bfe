"""IMDB: its words, their numbers, and the cache of them."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from sparsona import data
from sparsona.data import imdb
from sparsona.errors import DataError

REVIEWS = {
    "test/pos/0_9.txt": "good good wonderful",
    "test/neg/0_1.txt": "<br />Bad! bad unheard",
    "train/pos/1_10.txt": "It's good good a",
    "train/pos/0_8.txt": "good b",
    "train/neg/0_2.txt": "bad a",
    "train/unsup/0_0.txt": "good never counted",
}


def write_imdb(root: Path, reviews: dict[str, str] = REVIEWS, name: str = "aclImdb_v1.tar.gz") -> Path:
    (root / "imdb").mkdir(exist_ok=True)
    path = root / "imdb" / name
    with tarfile.open(path, "w:gz") as archive:
        for member, text in reviews.items():
            info = tarfile.TarInfo(f"aclImdb/{member}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize("name", ["aclImdb_v1.tar.gz", "aclImdb_labelled.tar.gz"])
def test_words_are_numbered_by_their_frequency_in_the_training_part(tmp_path: Path, name: str) -> None:
    write_imdb(tmp_path, name=name)
    loaded = data.load("imdb", tmp_path)
    # good 3, a 2, then bad, it's and b once each, in alphabetical order: b, bad, it's
    good, a, b, bad, its, unknown = 2, 3, 4, 5, 6, 1
    expected = [[bad, a], [good, b], [its, good, good, a], [bad, bad, unknown], [good, good, unknown]]
    assert [row[row > 0].tolist() for row in loaded.inputs] == expected
    assert loaded.inputs.shape == (5, 256)
    assert (loaded.inputs[:, 5:] == 0).all()
    assert loaded.targets.tolist() == [0, 1, 1, 0, 1]
    assert (loaded.official_test, loaded.vocabulary, loaded.classes) == (2, 10_000, 2)


def test_a_long_review_keeps_its_end_and_rare_words_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imdb, "VOCABULARY", 4)
    long = "first " + "good " * 300 + "bad"
    write_imdb(tmp_path, REVIEWS | {"train/pos/0_8.txt": long, "train/neg/0_2.txt": "bad bad bad"})
    loaded = data.load("imdb", tmp_path)
    assert loaded.inputs[1].tolist() == [2] * 255 + [3]
    assert loaded.inputs.max() == 3


def test_the_second_time_the_arrays_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_imdb(tmp_path)
    first = data.load("imdb", tmp_path)
    assert len(list((tmp_path / ".arrays").iterdir())) == 1

    def never(*_: object) -> None:
        raise AssertionError("the archive was read again")

    monkeypatch.setattr(imdb, "_tokenise", never)
    second = data.load("imdb", tmp_path)
    assert np.array_equal(first.inputs, second.inputs)
    assert np.array_equal(first.targets, second.targets)
    assert first.official_test == second.official_test
    monkeypatch.setattr(imdb, "RECIPE", "another tokenizer")
    with pytest.raises(AssertionError):
        data.load("imdb", tmp_path)
    monkeypatch.undo()
    # another archive under the same name, of the same age
    before = path.stat()
    write_imdb(tmp_path, REVIEWS | {"train/neg/0_2.txt": "bad b"})
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not np.array_equal(data.load("imdb", tmp_path).inputs, first.inputs)


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    write_imdb(tmp_path)
    first = data.load("imdb", tmp_path)
    (cache,) = (tmp_path / ".arrays").iterdir()
    whole = cache.read_bytes()
    cache.write_bytes(whole[: len(whole) // 2])
    assert np.array_equal(data.load("imdb", tmp_path).inputs, first.inputs)
    assert len(cache.read_bytes()) == len(whole)


def test_it_goes_on_where_no_cache_can_be_written(tmp_path: Path) -> None:
    write_imdb(tmp_path)
    (tmp_path / ".arrays").write_text("in the way")
    assert len(data.load("imdb", tmp_path)) == 5


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    path = write_imdb(tmp_path, REVIEWS | {"test/pos/1_9.txt": "word " * 5000})
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"aclImdb_v1\.tar\.gz is damaged.*sparsona data get imdb"):
        data.load("imdb", tmp_path)
    path.write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"aclImdb_v1\.tar\.gz is damaged"):
        data.load("imdb", tmp_path)
    write_imdb(tmp_path, {name: text for name, text in REVIEWS.items() if "test/neg" not in name})
    with pytest.raises(DataError, match="no reviews in aclImdb/test/neg"):
        data.load("imdb", tmp_path)
