"""Clients' states: hot ones in memory, the rest on disk, and never a version lost that a checkpoint names."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from engine_helpers import Memory, Stateful

from sparsona.errors import RunError
from sparsona.federation.delivery import LoopState
from sparsona.runs.checkpoint import Checkpointer, Snapshot
from sparsona.runs.state import digest, pack
from sparsona.runs.store import ClientStore
from sparsona.testing import tiny_setup


def state(number: int) -> Memory:
    return Memory(np.full(1000, number, np.float32), number)


@pytest.fixture
def setup() -> object:
    return tiny_setup(Stateful(), 4)


def store(hot_bytes: int = 2**20) -> ClientStore:
    setup = tiny_setup(Stateful(), 4)
    return ClientStore(partial(setup.method.start_client, setup.task), hot_bytes)


def position(done: int = 1) -> Snapshot[LoopState]:
    return Snapshot(done, None, LoopState(), 0, 0.0)


def test_a_client_that_was_never_written_has_its_first_state() -> None:
    setup = tiny_setup(Stateful(), 4)
    fresh = setup.method.start_client(setup.task, "c0")
    assert pack(store().get("c0")) == pack(fresh)
    assert store().digests(["c0"]) == {"c0": digest(fresh)}


def test_what_is_not_hot_is_on_disk_and_comes_back() -> None:
    small = store(hot_bytes=9000)
    for round in range(3):
        for i in range(20):
            small.put(f"c{i}", state(100 * round + i))
    assert small.files.scratch is not None
    assert len(list(small.files.scratch.iterdir())) in (18, 19, 20), "one version a client"
    assert [small.get(f"c{i}").turns for i in range(20)] == [200 + i for i in range(20)]
    assert small.files.held[0] == 2
    names = [f"c{i}" for i in range(20)]
    assert small.digests(names) == {f"c{i}": digest(state(200 + i)) for i in range(20)}
    scratch = small.files.scratch
    small.files.close()
    assert not scratch.exists()


def test_little_state_never_touches_the_disk() -> None:
    large = store()
    for i in range(20):
        large.put(f"c{i}", state(i))
    assert large.get("c7").turns == 7
    assert large.files.scratch is None


def test_only_a_client_that_has_a_state_is_found() -> None:
    ours = store()
    assert ours.find("c0") is None
    ours.put("c0", state(5))
    assert ours.find("c0").turns == 5


def test_states_move_into_the_run_directory(tmp_path: Path) -> None:
    ours = store(hot_bytes=9000)
    for i in range(5):
        ours.put(f"c{i}", state(i))
    scratch = ours.files.scratch
    versions = ours.settle(tmp_path / "clients")
    assert set(versions) == {f"c{i}" for i in range(5)}
    assert [ours.get(f"c{i}").turns for i in range(5)] == list(range(5))
    assert scratch is not None
    assert not scratch.exists()


def test_a_checkpoint_writes_only_what_has_changed(tmp_path: Path) -> None:
    ours, checkpointer = store(), Checkpointer(tmp_path)
    ours.put("c0", state(0))
    ours.put("c1", state(1))
    checkpointer.save(position(1), ours)
    before = {path.name: path.stat().st_mtime_ns for path in checkpointer.clients.iterdir()}
    ours.put("c1", state(11))
    checkpointer.save(position(2), ours)
    after = {path.name: path.stat().st_mtime_ns for path in checkpointer.clients.iterdir()}
    assert set(before) == {"c0.1", "c1.1"}
    assert set(after) == {"c0.1", "c1.2"}
    assert before["c0.1"] == after["c0.1"]
    assert {path.name for path in tmp_path.iterdir()} == {"clients", "manifest.json", "server.2", "loop.2"}


def test_a_crash_between_two_checkpoints_leaves_the_first(tmp_path: Path) -> None:
    ours, checkpointer = store(), Checkpointer(tmp_path)
    ours.put("c0", state(1))
    checkpointer.save(position(1), ours)
    ours.put("c0", state(2))
    ours.settle(checkpointer.clients)  # the files are there, the manifest is not
    later = store()
    Checkpointer(tmp_path).load(None, LoopState(), later, 3)
    assert later.get("c0").turns == 1
    assert [path.name for path in checkpointer.clients.iterdir()] == ["c0.1"], "what no manifest names is swept"
    later.put("c0", state(3))
    Checkpointer(tmp_path).save(position(2), later)
    assert later.get("c0").turns == 3


def test_a_missing_or_damaged_state_is_one_line(tmp_path: Path) -> None:
    ours, checkpointer = store(), Checkpointer(tmp_path)
    ours.put("c0", state(1))
    ours.put("c1", state(1))
    checkpointer.save(position(1), ours)
    (checkpointer.clients / "c1.1").write_bytes(b"damage")
    with pytest.raises(RunError, match=r"state of client c1 is damaged, c1\.1 is not as it was written"):
        checkpointer.load(None, LoopState(), store(), 3)
    (checkpointer.clients / "c0.1").unlink()
    with pytest.raises(RunError, match="state of client c0 is missing"):
        checkpointer.load(None, LoopState(), store(), 3)
