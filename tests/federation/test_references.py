"""References: what both sides have is held once, spilled past a budget, refused where it is damaged; and whether
frames are coded against it changes no model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from sparsona.engines.inprocess import InProcess
from sparsona.errors import MissingReference, RunError
from sparsona.federation.evaluation import LAST_ROUND
from sparsona.federation.references import ReferenceStore, usable
from sparsona.federation.rounds import Rounds, assemble
from sparsona.federation.schedule import EVERYONE, Schedule
from sparsona.federation.setup import Setup
from sparsona.federation.worker import Job, Outcome, Worker
from sparsona.message import Positions, Sparse
from sparsona.methods import METHODS
from sparsona.methods.fedavg import FedAvg
from sparsona.testing import Scripted, tiny_setup
from sparsona.wire import Ledger, Reference


def reference(seed: int, size: int = 100) -> Reference:
    return Reference.of({"weights": np.random.default_rng(seed).normal(size=size).astype(np.float32)})


def in_folder(folder: Path, hot_bytes: int = 2**20) -> ReferenceStore:
    store = ReferenceStore(hot_bytes)
    store.files.settle(folder)
    return store


def files(store: ReferenceStore) -> list[str]:
    return sorted(path.name for path in store.files.folder.iterdir())


def test_only_long_vectors_and_positions_are_worth_a_reference() -> None:
    parts: dict[str, Any] = {
        "long": np.zeros(64, np.float32),
        "short": np.zeros(63, np.float32),
        "mask": Positions(9, np.array([1])),
        "update": Sparse(999, np.arange(99), np.zeros(99, np.float32)),
        "examples": 7,
    }
    assert set(usable(parts)) == {"long", "mask"}


def test_equal_content_is_held_once() -> None:
    store = ReferenceStore()
    names = {store.add(reference(0)) for _ in range(5)}
    assert len(names) == 1
    assert store.files.held == (1, 400)
    assert store.add(reference(1)) not in names
    assert store.files.held == (2, 800)


def test_past_the_budget_the_one_used_longest_ago_is_a_file(tmp_path: Path) -> None:
    store = in_folder(tmp_path, 800)
    first, second = (store.add(reference(seed)) for seed in (0, 1))
    assert files(store) == []
    store.find(bytes.fromhex(first))
    third = store.add(reference(2))
    assert store.files.held == (2, 800)
    assert files(store) == [second], "the first one was used after it"
    found = store.find(bytes.fromhex(second))
    assert found is not None
    one, other = found.parts["weights"], reference(1).parts["weights"]
    assert isinstance(one, np.ndarray)
    assert isinstance(other, np.ndarray)
    assert np.array_equal(one, other)
    assert sorted(files(store)) == sorted([first, second]), "it is in memory again, and another one is not"
    assert store.files.held == (2, 800)
    assert third not in files(store)


def test_one_that_is_larger_than_the_budget_is_held_alone(tmp_path: Path) -> None:
    store = in_folder(tmp_path, 10)
    first, second = (store.add(reference(seed)) for seed in (0, 1))
    assert store.files.held == (1, 400)
    assert files(store) == [first]
    assert store.find(bytes.fromhex(second)) is not None


@pytest.mark.parametrize("damage", ["another", "cut", "text", "removed"])
def test_wrong_content_is_no_reference(damage: str, tmp_path: Path) -> None:
    store = in_folder(tmp_path)
    name, other = store.add(reference(0)), store.add(reference(1))
    store.files.save()
    file = tmp_path / name
    whole = file.read_bytes()
    damages: dict[str, Callable[[], object]] = {
        "another": lambda: file.write_bytes((tmp_path / other).read_bytes()),
        "cut": lambda: file.write_bytes(whole[:-5]),
        "text": lambda: file.write_bytes(b"hello"),
        "removed": file.unlink,
    }
    damages[damage]()
    fresh = in_folder(tmp_path)
    assert fresh.find(bytes.fromhex(name)) is None
    assert fresh.find(bytes.fromhex(other)) is not None


def test_what_no_frame_can_refer_to_any_more_goes(tmp_path: Path) -> None:
    store = in_folder(tmp_path)
    names = [store.add(reference(seed)) for seed in range(3)]
    store.files.keep(names[:2])
    assert store.files.held == (2, 800)
    store.files.save()
    assert files(store) == sorted(names[:2])
    must_sync = [*(tmp_path / name for name in names[:2]), tmp_path]
    assert store.files.take_unsynced() == must_sync
    assert store.files.take_unsynced() == []
    (tmp_path / "notes.txt").write_text("the owner's")
    store.files.keep(names[1:2])
    assert files(store) == sorted([*names[:2], "notes.txt"]), "the last checkpoint may name it"
    store.files.sweep()
    assert files(store) == sorted([names[1], "notes.txt"])


def test_threads_that_look_for_the_same_reference_all_find_it(tmp_path: Path) -> None:
    """Replies are decoded in threads: where one finds nothing, the aggregation is made again without them."""
    store = in_folder(tmp_path)
    fingerprint = bytes.fromhex(store.add(reference(0)))
    together = Barrier(2)

    def missed(_: int) -> int:
        together.wait()
        return sum(store.find(fingerprint) is None for _ in range(200_000))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(missed, range(2))) == [0, 0]
    finally:
        sys.setswitchinterval(interval)


def test_a_reference_that_is_gone_is_missing() -> None:
    store = ReferenceStore()
    with pytest.raises(MissingReference, match="0123456789abcdef"):
        store.held(bytes.fromhex("0123456789abcdef"))
    assert store.files.scratch is None


def test_what_a_crash_left_half_written_goes(tmp_path: Path) -> None:
    store = in_folder(tmp_path)
    name = store.add(reference(0))
    for left in (f"{name}.part", f"{name}.0123abcd.part", f"{name}.notes.part"):
        (tmp_path / left).write_bytes(b"half")
    store.files.save()
    again = ReferenceStore()
    again.files.adopt(tmp_path, {name})
    assert again.find(bytes.fromhex(name)) is not None
    assert files(again) == [name, f"{name}.notes.part"]


def test_files_of_a_store_of_its_own_go_with_it() -> None:
    store = ReferenceStore()
    store.publish([bytes.fromhex(store.add(reference(0)))])
    folder = store.files.folder
    assert files(store)
    store.files.close()
    assert not folder.exists()


# In a run


def test_one_process_writes_no_files_for_itself() -> None:
    rounds = loop(tiny_setup(METHODS.get("spfl")(), clients=3, rounds=3))
    rounds.run()
    assert rounds.engine.references.files.held[0]
    assert not files(rounds.engine.references)


def loop(setup: Setup, schedule: Schedule = EVERYONE, checkpoint: Path | None = None) -> Rounds:
    return assemble(setup, InProcess(setup), schedule, LAST_ROUND, checkpoint=checkpoint)


ROUGH = Scripted((
    {"c0": "lost", "c1": "late"}, {"c0": "twice"}, {"c0": "lost", "c1": "lost", "c2": "lost"}, {"c2": "crashed"}, {},
))  # fmt: skip


@pytest.mark.parametrize("name", ["fedavg", "fedpse", "fedspa", "plga", "pfednet", "spfl", "fedscr"])
def test_packing_changes_bytes_and_no_model(name: str) -> None:
    """Models are equal to the bit, and where the wire codes against a reference it takes fewer bytes."""
    loops = []
    for packing in ("tight", "plain"):
        loops.append(loop(replace(tiny_setup(METHODS.get(name)(), rounds=5), packing=packing), ROUGH))
        loops[-1].run()
    tight, plain = loops
    clients = tight.setup.task.clients
    for one, other in zip(tight.finish("personal", clients), plain.finish("personal", clients), strict=True):
        assert isinstance(one.model, np.ndarray)
        assert isinstance(other.model, np.ndarray)
        assert np.array_equal(one.model, other.model)
    assert plain.delivery.references == set()
    ways = [sum((getattr(r, way) for r in tight.run_log.rounds), Ledger()) for way in ("up", "down")]
    assert all(way.against <= way.against_plain for way in ways)
    assert sum((r.down.against + r.up.against for r in plain.run_log.rounds), 0) == 0


def test_a_model_that_goes_to_everybody_is_held_once_and_old_ones_go() -> None:
    setup = tiny_setup(FedAvg(), rounds=4)
    made = loop(setup)
    held = []
    made.run(lambda _: held.append(made.engine.references.files.held))
    assert held == [(1, 4 * setup.task.layout.size)] * 4
    assert set(made.delivery.snapshot().holds) == set(setup.task.clients)


def test_a_late_reply_is_read_against_the_downlink_that_it_answers() -> None:
    setup = tiny_setup(FedAvg(), rounds=4)
    made = loop(setup, Scripted(({}, {"c1": "later"}, {}, {})))
    held: list[int] = []
    made.run(lambda _: held.append(made.engine.references.files.held[0]))
    assert held == [1, 2, 3, 2], "of c1 what it is known to have and what it was sent; of the others what they have"
    assert made.delivery.snapshot().acked["c1"] == (1, 0)


def test_a_run_goes_on_with_the_references_of_its_checkpoint(tmp_path: Path) -> None:
    whole = loop(tiny_setup(FedAvg(), rounds=4))
    whole.run()
    first = loop(tiny_setup(FedAvg(), rounds=4), checkpoint=tmp_path / "a")

    def stop(_: object) -> None:
        if first.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.run(stop)
    folder = tmp_path / "a" / "references"
    assert [path.name for path in folder.iterdir()] == list(first.delivery.references)
    again = loop(tiny_setup(FedAvg(), rounds=4), checkpoint=tmp_path / "a")
    again.resume()
    again.run()
    assert np.array_equal(again.server.weights, whole.server.weights)
    ours, theirs = ([r.down.total for r in made.run_log.rounds] for made in (again, whole))
    assert ours[-2:] == theirs[-2:], "what clients have is known again, and differences are sent"


def test_late_replies_of_another_wire_format_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else in a checkpoint is a frame."""
    first = loop(tiny_setup(FedAvg(), rounds=4), Scripted(({}, {"c1": "later"}, {}, {})), checkpoint=tmp_path)
    first.run(lambda _: first.done < 2)
    again = loop(tiny_setup(FedAvg(), rounds=4), checkpoint=tmp_path)
    monkeypatch.setattr("sparsona.federation.rounds.VERSION", 9)
    with pytest.raises(RunError, match="not of wire format 9: run it again"):
        again.resume()


class Forgetful(InProcess):
    """A client that has lost its references before a round: the server does not know."""

    forgets = (2, "c1")

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            if (job.stamp.round, job.client) == self.forgets and job.kind == "fit":
                Worker(self._worker.setup, ReferenceStore()).received(job)
            yield from super().run([job])


def test_a_client_without_its_references_says_what_it_needs() -> None:
    """It can not guess: the frame names what it is coded against, and a client that has it not asks for the whole."""
    setup = tiny_setup(FedAvg(), rounds=3)
    made = assemble(setup, Forgetful(setup), evaluation=LAST_ROUND)
    with pytest.raises(MissingReference, match="ask the sender for the whole"):
        made.run()


def test_a_server_without_the_reference_sends_the_whole() -> None:
    """What the server has forgotten it does not code against; the models are the same."""
    whole = loop(tiny_setup(FedAvg(), rounds=4))
    whole.run()
    made = loop(tiny_setup(FedAvg(), rounds=4))
    made.run(lambda _: made.engine.references.files.keep(()))
    assert np.array_equal(made.server.weights, whole.server.weights)
    assert all(report.down.against == 0 for report in made.run_log.rounds)
