"""The one store that spills to files: what is evicted comes back, what a checkpoint may name stays."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sparsona.runs.store import SpillStore


def store(limit: int = 100) -> SpillStore[str]:
    return SpillStore("[a-z]+", limit, len, lambda name, value: value.encode())


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=30), st.integers(0, 30))
def test_every_value_is_in_memory_or_a_file_and_memory_keeps_to_its_budget(
    steps: list[tuple[str, bool]], limit: int
) -> None:
    ours, put = store(limit), set[str]()
    for name, add in steps:
        if add and name not in put:
            ours.put(name, name * 7)
            put.add(name)
        else:
            ours.find(name)
        assert ours.held[1] <= limit or ours.held[0] == 1
        assert all(ours.find(one) == one * 7 or ours.is_file(one) for one in put)
    ours.close()


def test_a_file_outlives_its_value_until_it_is_swept(tmp_path: Path) -> None:
    ours = store()
    ours.settle(tmp_path)
    for name in ("a", "b"):
        ours.put(name, name)
    ours.save()
    ours.discard(["a"])
    assert ours.find("a") is None
    assert files(tmp_path) == ["a", "b"]
    ours.write("a", b"a")
    ours.sweep()
    assert files(tmp_path) == ["a", "b"], "it is written again"
    ours.keep({"a"})
    ours.sweep()
    assert files(tmp_path) == ["a"]


def test_files_move_with_the_store_and_must_be_synced_there(tmp_path: Path) -> None:
    ours = store()
    ours.put("a", "a")
    ours.save()
    scratch = ours.scratch
    ours.settle(tmp_path / "run")
    assert scratch is not None
    assert not scratch.exists()
    assert ours.take_unsynced() == [tmp_path / "run" / "a", tmp_path / "run"]
    assert ours.take_unsynced() == []


def test_what_a_crash_left_goes_and_foreign_files_stay(tmp_path: Path) -> None:
    for name in ("a", "b", "a.part", "a.0123abcd.part", "NOTES", "a.notes.part"):
        (tmp_path / name).write_text(name)
    ours = store()
    ours.adopt(tmp_path, {"a", "missing"})
    assert files(tmp_path) == ["NOTES", "a", "a.notes.part"]
    assert ours.is_file("a")
    assert not ours.is_file("missing")
