"""Files that are whole or not there."""

from __future__ import annotations

from pathlib import Path

from sparsona.files import write_whole


def test_a_whole_file_replaces_another_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        write_whole(tmp_path / "a", content)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": content}
