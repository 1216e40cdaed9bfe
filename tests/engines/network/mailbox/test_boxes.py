"""A mailbox whose storage cuts, repeats, swaps and withholds files, is full, or cannot be written."""

from __future__ import annotations

import errno
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flower_helpers import Federation
from fsspec.implementations.local import LocalFileSystem
from mailbox_helpers import Echo, Together

from sparsona.engines.network import carrier as carrier_module
from sparsona.engines.network import engine as engine_module
from sparsona.engines.network.carrier import OrderGuard
from sparsona.engines.network.engine import MessageExchange, PendingMessage
from sparsona.engines.network.mailbox.boxes import LEFT
from sparsona.engines.network.serverapp import NetworkRun
from sparsona.errors import StoreError
from sparsona.experiment import to_toml
from sparsona.files import write_atomically

CLIENTS = ("a", "ward 7")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "SOON", 0.005)
    monkeypatch.setattr(engine_module, "RETRY", 0.01)


def files(box: Path) -> list[Path]:
    return sorted(path for path in box.rglob("*") if path.is_file())


class Meddler:
    """Does something to each file that it sees for the first time, at most `times`."""

    def __init__(self, box: Path, act: Callable[[Path], None], times: int = 3) -> None:
        self._box, self._act, self._left, self._seen = box, act, times, set[Path]()

    def __call__(self) -> None:
        for path in files(self._box):
            if path not in self._seen and self._left:
                self._seen.add(path)
                self._left -= 1
                self._act(path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def withdraw(path: Path) -> None:
    path.unlink()


def renumber(path: Path) -> None:
    stem, dot, number = path.name.rpartition(".")
    path.rename(path.with_name(f"{stem}{dot}{int(number) + 1}"))


def misaddress(path: Path) -> None:
    if path.parent.parent.name == "nodes":
        other = next(box for box in path.parent.parent.iterdir() if box != path.parent)
        path.rename(other / path.name)
    else:
        stem, _, number = path.name.rpartition(".")
        path.rename(path.with_name(f"{'a' if stem != 'a' else 'ward=207'}.{number}"))


def exchanged(carrier: Together, nodes: dict[str, Echo], orders: int = 4) -> None:
    post, until = MessageExchange(carrier), time.monotonic() + 20
    for order in range(orders):
        head, body = {"kind": "turn", "order": order}, f"order {order}".encode()
        post.send(PendingMessage(client, head, body, until) for client in CLIENTS)
        came = [(one.client, head["order"], body) for one, head, body in post.receive(until)]
        assert sorted(came) == [(client, order, body[::-1]) for client in CLIENTS]
    for node in nodes.values():
        assert node.done == sorted(node.done)


@pytest.mark.parametrize("act", [cut, empty, flip, withdraw, renumber, misaddress], ids=lambda act: act.__name__)
def test_what_the_storage_does_to_files_costs_time_and_nothing_else(
    act: Callable[[Path], None], tmp_path: Path
) -> None:
    nodes = {client: Echo() for client in CLIENTS}
    carrier = Together(str(tmp_path / "box"), nodes, tmp_path)
    (tmp_path / "box" / "nodes" / "ward=207").mkdir(parents=True)
    (tmp_path / "box" / "nodes" / "a").mkdir()
    carrier.meddle = Meddler(tmp_path / "box", act)
    exchanged(carrier, nodes)


def test_repeated_files_are_neither_answered_nor_counted_again(tmp_path: Path) -> None:
    """The storage puts every file back that was ever there, as a one-way copy of the folder does."""
    nodes = {client: Echo() for client in CLIENTS}
    box, attic = tmp_path / "box", tmp_path / "attic"
    carrier = Together(str(box), nodes, tmp_path)

    def put_back() -> None:
        for place in (box, attic):
            place.mkdir(exist_ok=True)
        shutil.copytree(box, attic, dirs_exist_ok=True)
        shutil.copytree(attic, box, dirs_exist_ok=True)

    carrier.meddle = put_back
    exchanged(carrier, nodes)
    assert all(node.done == [0, 1, 2, 3] for node in nodes.values())


@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_or_read_only_storage_is_waited_for(
    problem: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = {client: Echo() for client in CLIENTS}
    carrier, write, tried = Together(str(tmp_path / "box"), nodes, tmp_path), LocalFileSystem.pipe_file, list[str]()

    def pipe_file(self: LocalFileSystem, path: str, value: bytes, **more: Any) -> None:
        tried.append(path)
        if len(tried) % 3 != 0:
            raise OSError(problem, "the storage is full or cannot be written", path)
        write(self, path, value, **more)

    monkeypatch.setattr(LocalFileSystem, "pipe_file", pipe_file)
    exchanged(carrier, nodes)
    assert all(node.done == [0, 1, 2, 3] for node in nodes.values()), "a reply that could not be put is kept"
    assert "the mailbox is not reached" in caplog.text


def test_an_owners_disk_that_is_full_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {client: Echo() for client in CLIENTS}
    carrier, tried = Together(str(tmp_path / "box"), nodes, tmp_path), list[Path]()

    def write(path: Path, data: str) -> None:
        tried.append(path)
        if len(tried) % 3 == 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_atomically(path, data)

    monkeypatch.setattr(carrier_module, "write_atomically", write)
    exchanged(carrier, nodes)
    assert all(node.done == [0, 1, 2, 3] for node in nodes.values())
    tried.clear()
    with pytest.raises(StoreError, match=r"cannot write .*numbers \(No space left on device\): make room"):
        OrderGuard(nodes["a"], tmp_path / "a.numbers").done(100)


def test_names_tell_sender_receiver_and_number_and_little_is_left(tmp_path: Path) -> None:
    nodes, seen, most = {client: Echo() for client in CLIENTS}, set[str](), list[int]()
    box = tmp_path / "box"
    carrier = Together(str(box), nodes, tmp_path)

    def note() -> None:
        seen.update(str(path.relative_to(box)) for path in files(box))
        most.append(len(files(box)))

    carrier.meddle = note
    exchanged(carrier, nodes, orders=10)
    assert all(re.fullmatch(r"(nodes/(a|ward=207)/|server/(a|ward=207)\.)[0-9]+", name) for name in seen)
    assert max(most) <= 2 * 2 * len(CLIENTS)
    assert files(box) == []


def test_replies_that_the_server_never_takes_do_not_pile_up(tmp_path: Path) -> None:
    nodes = {client: Echo() for client in CLIENTS}
    carrier, box = Together(str(tmp_path / "box"), nodes, tmp_path), tmp_path / "box"
    post = MessageExchange(carrier)
    for order in range(LEFT + 3):
        post.send([PendingMessage("a", {"kind": "turn", "order": order}, b"", time.monotonic() + 60)])
        carrier.inboxes["a"].look()
    assert len(files(box / "server")) == LEFT


def test_a_server_that_starts_again_removes_what_it_had_asked_before(tmp_path: Path) -> None:
    carrier = Together(str(tmp_path / "box"), {"a": Echo()}, tmp_path)
    post = MessageExchange(carrier)
    post.send([PendingMessage("a", {"kind": "turn", "order": 1}, b"", time.monotonic() + 60)])
    assert files(tmp_path / "box")
    carrier.clear()
    assert not files(tmp_path / "box")


def test_a_node_looks_less_and_less_often_and_once_ends_when_nothing_is_there(tmp_path: Path) -> None:
    carrier = Together(str(tmp_path / "box"), {"a": Echo()}, tmp_path)
    inbox, slept = carrier.inboxes["a"], list[float]()

    class Enough(Exception):
        pass

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 30:
            raise Enough

    with pytest.raises(Enough):
        inbox.serve(idle=5.0, sleep=sleep)
    assert slept == sorted(slept)
    assert slept[-1] == 5.0
    MessageExchange(carrier).send([PendingMessage("a", {"kind": "turn", "order": 1}, b"", time.monotonic() + 60)])
    inbox.serve(once=True)
    assert [path.parent.name for path in files(tmp_path / "box")] == ["server"]


def test_once_says_where_the_mailbox_is_not_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carrier = Together(str(tmp_path / "box"), {"a": Echo()}, tmp_path)

    def ls(self: LocalFileSystem, path: str, **more: Any) -> list[Any]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    with pytest.raises(StoreError, match="Permission denied"):
        carrier.inboxes["a"].serve(once=True)


def test_a_run_through_a_meddled_mailbox_gives_the_simulators_digest(tmp_path: Path) -> None:
    federation = Federation(tmp_path, method="fedspa", rounds=2)
    carrier = Together(str(tmp_path / "box"), federation.carrier.nodes, tmp_path)
    acts = iter([cut, flip, withdraw, empty] * 2)
    carrier.meddle = Meddler(tmp_path / "box", lambda path: next(acts)(path), times=8)
    found = NetworkRun(carrier, federation.home, to_toml(federation.experiment), "run", 60.0).execute()
    simulated = federation.simulated()
    assert (found["digest"], found["bytes"]) == (simulated["digest"], simulated["bytes"])
