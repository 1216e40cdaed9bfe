"""Files that are whole or not there."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from sparsona import files
from sparsona.files import write_whole


def test_a_whole_file_replaces_another_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        write_whole(tmp_path / "a", content)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": content}


def test_a_file_that_cannot_be_written_to_its_end_is_named(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as found:
            files.write_new(tmp_path / "a", bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found.value.filename == str(tmp_path / "a")


def test_two_may_write_the_same_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes all of it while this one has written and not yet renamed its own."""
    write_new = files.write_new

    def interrupted(path: Path, data: bytes) -> None:
        write_new(path, data)
        monkeypatch.undo()
        write_whole(tmp_path / "a", b"the other's")

    monkeypatch.setattr(files, "write_new", interrupted)
    write_whole(tmp_path / "a", b"ours")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"ours"}


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "a", b"ours")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
