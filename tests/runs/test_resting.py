"""What a server need not have in memory: the same state, the same digest, whatever the budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsona.by_client import ByClient, Resting
from sparsona.engines.inprocess import InProcess
from sparsona.errors import RunError
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import Sampled
from sparsona.message import Sparse, Vector
from sparsona.methods import METHODS
from sparsona.ops.sparse import Packed
from sparsona.runs.resting import RestingStore, read_resting, resting_names
from sparsona.runs.state import digest, pack, unpack
from sparsona.testing import tiny_setup


@dataclass(frozen=True)
class Held:
    weights: Vector
    owed: ByClient[Packed]
    rows: Vector


def packed(number: int) -> Packed:
    return Packed.of(Sparse(800, np.arange(number, 800, 8), np.full(len(range(number, 800, 8)), number, np.float32)))


def held(*numbers: int) -> Held:
    owed: ByClient[Packed] = ByClient({f"c{n}": packed(n) for n in numbers})
    return Held(np.ones(3, np.float32), owed, np.arange(2000, dtype=np.float32))


def in_memory(state: Held) -> list[str]:
    return [client for client, value in state.owed.held.items() if not isinstance(value, Resting)]


def test_what_was_given_longest_ago_rests_first() -> None:
    store = RestingStore(limit=1200)  # two values
    state = replace(held(1, 2), rows=np.zeros(0, np.float32))
    assert store.rested(state) is state
    state = replace(state, owed=state.owed | {"c3": packed(3), "c1": packed(4)})
    rested = store.rested(state)
    assert in_memory(rested) == ["c3", "c1"]
    assert list(rested.owed) == ["c1", "c2", "c3"]
    assert np.array_equal(rested.owed["c2"].values, packed(2).values)
    assert digest(rested) == digest(state)
    assert store.held <= 1200
    files = list(store.files.folder.iterdir())
    assert [file.name for file in files] == sorted(resting_names(rested))
    store.keep(state)
    assert list(store.files.folder.iterdir()) == []
    store.close()


def test_a_value_that_clients_share_is_one_file() -> None:
    store, same = RestingStore(limit=600), packed(1)
    owed = ByClient({"a": same, "b": same, "c": packed(2)})
    rested = store.rested(owed)
    assert len(resting_names(rested)) == 1
    assert store.held <= 600
    store.close()


def test_a_large_array_is_mapped_and_its_file_goes_with_it() -> None:
    store = RestingStore(limit=4000)
    state = held(1)
    rested = store.rested(state)
    assert rested.weights is state.weights
    assert isinstance(rested.rows.base, np.memmap)
    assert not rested.rows.flags.writeable
    assert np.array_equal(rested.rows, state.rows)
    assert store.rested(rested).rows is rested.rows, "what is mapped stays"
    assert digest(rested) == digest(state)
    store.keep(rested)
    assert [file.name for file in store.files.folder.iterdir()] == ["rows-0"]
    store.keep(None)
    assert list(store.files.folder.iterdir()) == []
    store.close()


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 7)), max_size=12), st.integers(0, 4000))
def test_it_is_a_mapping_whatever_the_budget(given_: list[tuple[str, int]], limit: int) -> None:
    store, plain = RestingStore(limit), dict[str, int]()
    state: ByClient[Packed] = ByClient()
    for client, number in given_:
        plain[client] = number
        state = store.rested(state | {client: packed(number)})
        store.keep(state)
    assert list(state) == sorted(plain)
    assert {client: int(value.values[0]) for client, value in state.items()} == plain
    assert digest(state) == digest(ByClient({client: packed(number) for client, number in plain.items()}))
    assert store.held <= limit
    store.close()


def test_a_state_comes_back_from_its_bytes_and_the_files_beside() -> None:
    store = RestingStore(limit=600)
    state = store.rested(replace(held(1, 2, 3), rows=np.zeros(0, np.float32)))
    again = unpack(pack(state), Held, find=lambda name: read_resting(store.files.folder, name))
    assert digest(again) == digest(state)
    assert np.array_equal(again.owed["c1"].values, packed(1).values)
    name = sorted(resting_names(again))[0]
    (store.files.folder / name).write_bytes(b"other")
    with pytest.raises(RunError, match="damaged"):
        read_resting(store.files.folder, name)
    with pytest.raises(RunError, match="not in it"):
        unpack(pack(state), Held).owed["c1"]
    store.close()


def loop(setup: Any, memory: int, checkpoint: Path | None = None) -> Rounds:
    return assemble(setup, InProcess(setup), Sampled(sample=0.6), LAST_ROUND, checkpoint=checkpoint, memory=memory)


@pytest.mark.parametrize("name", ["fedpse", "fedspa", "sub-fedavg", "fedmask", "spfl", "plga", "pfednet"])
def test_methods_give_the_same_digest_within_no_memory_at_all(name: str, tmp_path: Path) -> None:
    setup = tiny_setup(METHODS.get(name)(), 4, rounds=4)
    free = loop(setup, 2**30)
    free.run()
    tight = loop(setup, 2, tmp_path)
    tight.run()
    assert digest(tight.server) == digest(free.server)
    assert resting_names(free.server) == set()
    if name != "pfednet":
        assert len(resting_names(tight.server)) > 0 or name == "plga"
    assert tight.resting.held == 0


def test_a_run_is_resumed_from_values_at_rest_and_a_missing_one_is_named(tmp_path: Path) -> None:
    setup = tiny_setup(METHODS.get("fedpse")(), 4, rounds=4)
    reference = loop(setup, 2**30)
    reference.run()
    short = replace(setup, task=replace(setup.task, rounds=2))
    loop(short, 2, tmp_path).run()
    again = loop(setup, 2**30, tmp_path)
    again.resume()
    assert len(resting_names(again.server)) > 0
    again.run()
    assert digest(again.server) == digest(reference.server)
    kept = sorted(path.name for path in (tmp_path / "resting").iterdir())
    assert kept == sorted(resting_names(again.server))
    if kept:
        (tmp_path / "resting" / kept[0]).unlink()
        with pytest.raises(RunError, match=f"resting/{kept[0]}.* is missing"):
            loop(setup, 2, tmp_path).resume()


def test_a_checkpoint_writes_what_has_changed(tmp_path: Path) -> None:
    store = RestingStore(whole=0)
    store.files.settle(tmp_path)
    state = Held(np.ones(3, np.float32), ByClient({f"c{n}": packed(n) for n in range(5)}), np.ones(2, np.float32))
    first = store.written(state)
    assert len(store.files.take_unsynced()) == 5 + 1, "a file a client, and the folder"
    state = replace(state, owed=state.owed | {"c2": packed(7)})
    second = store.written(state)
    new = resting_names(second) - resting_names(first)
    assert [path.name for path in store.files.take_unsynced()] == [*new, tmp_path.name]
    assert digest(second) == digest(state)
    assert not resting_names(state), "what is in memory stays there"
    store.keep(second)
    store.files.sweep()
    assert {path.name for path in tmp_path.iterdir()} == resting_names(second)
    little = RestingStore()
    assert little.written(state) is state
