"""The loop and the nodes over a carrier that loses, repeats, delays and reorders."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from flower_helpers import Federation
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sparsona.engines.network import engine as engine_module
from sparsona.engines.network.carrier import (
    HIGHEST,
    Answer,
    Answering,
    Body,
    OrderGuard,
    Parcel,
    Returned,
    checked_number,
)
from sparsona.engines.network.engine import MessageExchange, PendingMessage
from sparsona.engines.network.flower.started.sparsona_records import BadParcel, Head
from sparsona.engines.network.serverapp import NetworkRun
from sparsona.errors import RunError
from sparsona.experiment import to_toml

T = TypeVar("T")
Chances = tuple[float, float, float, float]
"""Of a loss, a loss that the carrier notices, a repetition, and a delay."""


class Adversary:
    """Carries parcels to guards. What is in transit arrives in any order, several times, late, or not at all.

    Even the worst carrier delivers now and then: after `mercy` pulls it does all that it is asked.
    """

    idle, silence = 0.002, 0.01

    def __init__(self, guards: dict[str, OrderGuard], chances: Chances, seed: int, mercy: int = 100) -> None:
        self.guards, self.clients = guards, sorted(guards)
        self._chances, self._random, self._mercy = chances, random.Random(seed), mercy
        self._down: list[tuple[str, Parcel]] = []
        self._up: list[Returned] = []
        self._sent = 0

    def push(self, parcels: Sequence[Parcel]) -> list[str | None]:
        return [self._taken(parcel) for parcel in parcels]

    def _taken(self, parcel: Parcel) -> str | None:
        self._sent += 1
        name = f"{parcel.client}.{self._sent}"
        if self._happens(1):
            return None
        self._down += [(name, parcel)] * self._copies()
        return name

    def pull(self, names: Sequence[str]) -> list[Returned]:
        self._mercy -= 1
        for name, parcel in self._arriving(self._down):
            head, body = self._answered(parcel)
            self._up += [Returned(name, head, body)] * self._copies()
            if self._happens(1):
                self._up.append(Returned(name, why="lost", lost=True))
        return list(self._arriving(self._up))

    def _answered(self, parcel: Parcel) -> Answer:
        guard = self.guards[parcel.client]
        head, body = guard.answer(parcel.number, json.loads(json.dumps(parcel.head)), lambda most: parcel.body)
        guard.done(parcel.number)
        return json.loads(json.dumps(head)), body

    def _copies(self) -> int:
        return 0 if self._happens(0) else 2 if self._happens(2) else 1

    def _happens(self, what: int) -> bool:
        return self._mercy > 0 and self._random.random() < self._chances[what]

    def _arriving(self, transit: list[T]) -> Iterator[T]:
        self._random.shuffle(transit)
        staying = [one for one in transit if self._happens(3)]
        arriving = [one for one in transit if not any(one is other for other in staying)]
        transit[:] = staying
        yield from arriving


class Scribe:
    """A node that notes the orders it carries out. It must never be asked for one that is older than the last."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def answer(self, head: Head, body: Body) -> Answer:
        if head["kind"] == "ping":
            return {"kind": "pong"}, b""
        self.done.append(head["order"])
        return {"kind": "turn", "order": head["order"]}, body(100)[::-1]


chances = st.tuples(*[st.sampled_from([0.0, 0.1, 0.4, 0.7]) for _ in range(4)])


def _faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "SOON", 0.001)
    monkeypatch.setattr(engine_module, "RETRY", 0.002)


@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(chances=chances, seed=st.integers(0, 2**32))
def test_every_order_is_answered_and_none_is_carried_out_after_a_newer_one(chances: Chances, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        _faster(patch)
        scribes = {client: Scribe() for client in ("a", "b")}
        guards = {client: OrderGuard(scribe, Path(folder) / client) for client, scribe in scribes.items()}
        post = MessageExchange(Adversary(guards, chances, seed))
        until = time.monotonic() + 10
        for order in range(4):
            head, body = {"kind": "turn", "order": order}, f"order {order}".encode()
            post.send(PendingMessage(client, head, body, until) for client in scribes)
            came = [(one.client, head["order"], body) for one, head, body in post.receive(until)]
            assert sorted(came) == [(client, order, body[::-1]) for client in scribes]
        for scribe in scribes.values():
            assert scribe.done == sorted(scribe.done)
            assert set(scribe.done) == set(range(4))


@pytest.mark.parametrize(("method", "seed"), [("fedspa", 1), ("fedpse", 2)])
def test_a_run_over_the_worst_carrier_gives_the_simulators_digest(
    method: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _faster(monkeypatch)
    federation = Federation(tmp_path, method=method, rounds=2)
    guards = {
        client: OrderGuard(node, tmp_path / f"{client}.numbers") for client, node in federation.carrier.nodes.items()
    }
    carrier = Adversary(guards, (0.3, 0.2, 0.4, 0.4), seed)
    found = NetworkRun(carrier, federation.home, to_toml(federation.experiment), "run", 60.0).execute()
    assert found["digest"] == federation.simulated()["digest"]


def guard_of(node: Answering, file: Path) -> Callable[[int], str]:
    guard = OrderGuard(node, file)

    def ask(number: int) -> str:
        kind = str(guard.answer(number, {"kind": "ping"}, lambda most: b"")[0]["kind"])
        guard.done(number)
        return kind

    return ask


def test_a_desk_remembers_what_it_has_answered_over_a_restart(tmp_path: Path) -> None:
    ask = guard_of(Scribe(), tmp_path / "numbers")
    assert [ask(number) for number in (5, 7, 6, 7)] == ["pong", "pong", "behind", "behind"]
    again = OrderGuard(Scribe(), tmp_path / "numbers")
    assert again.answer(7, {"kind": "ping"}, lambda most: b"")[0] == {"kind": "behind", "number": 7}
    assert again.has_answered(5)
    assert not again.has_answered(8)


def test_damaged_numbers_are_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text('["a"]')
    with pytest.raises(RunError, match="another --state"):
        OrderGuard(Scribe(), tmp_path / "numbers")


@pytest.mark.parametrize("number", [None, True, 0, -1, 1.5, "7", HIGHEST + 1])
def test_what_is_no_number_is_refused(number: object) -> None:
    with pytest.raises(BadParcel):
        checked_number(number)


def test_a_server_whose_clock_has_gone_back_numbers_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _faster(monkeypatch)
    scribe = Scribe()
    guard = OrderGuard(scribe, tmp_path / "numbers")
    guard.done(HIGHEST // 4)
    post = MessageExchange(Adversary({"a": guard}, (0.0, 0.0, 0.0, 0.0), 0))
    until = time.monotonic() + 20
    post.send([PendingMessage("a", {"kind": "turn", "order": 1}, b"", until)])
    assert [one.client for one, _, _ in post.receive(until)] == ["a"]
