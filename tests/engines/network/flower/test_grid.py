"""Flower's Grid behind the carrier, with a Grid of our own."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from sparsona.engines.network.carrier import Returned
from sparsona.engines.network.flower import grid as grid_module
from sparsona.engines.network.flower.grid import FlowerCarrier
from sparsona.errors import RunError


class SuperLink:
    """Has a reply to every message, and names each once."""

    def __init__(self) -> None:
        self.gone = False
        self.named: set[str] = set()

    def PullMessages(self, request: Any) -> Any:
        if self.gone:
            raise OSError("the SuperLink is gone")
        new = [name for name in request if name not in self.named]
        self.named.update(new)
        return new


class Grid:
    """Fetches replies. That to `stuck` takes until `go` is set."""

    def __init__(self, client: SuperLink) -> None:
        self._client, self.go = client, threading.Event()

    @property
    def _runtime_client(self) -> SuperLink:
        return self._client

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str | None]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        reply = self._runtime_client.PullMessages(None)
        name = reply.messages_list[0].metadata.reply_to_message_id
        if name == "stuck":
            self.go.wait()
        if name == "broken":
            raise OSError("500 Internal Server Error")
        return [name]


@pytest.fixture
def carrier(monkeypatch: pytest.MonkeyPatch) -> FlowerCarrier:
    def named(self: FlowerCarrier, names: Iterable[str]) -> list[Any]:
        found = self._grid._runtime_client.PullMessages(names)
        heads = [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=name)) for name in found]
        return [SimpleNamespace(messages_list=[head]) for head in heads]

    monkeypatch.setattr(FlowerCarrier, "_answer", lambda self, message: Returned(message))
    monkeypatch.setattr(FlowerCarrier, "_named", named)
    return FlowerCarrier(Grid(SuperLink()), {})


def test_a_reply_that_does_not_arrive_holds_up_no_other(carrier: FlowerCarrier) -> None:
    assert [one.name for one in carrier.pull(["stuck", "a"])] == ["a"]
    assert [one.name for one in carrier.pull(["stuck", "b"])] == ["b"]
    carrier._grid.go.set()  # type: ignore[attr-defined]
    assert [one.name for one in carrier.pull(["stuck"])] == ["stuck"]


def test_a_superlink_under_load_is_asked_again_and_one_that_is_gone_is_not(
    carrier: FlowerCarrier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    carrier._grid._runtime_client.gone = True
    assert carrier.pull(["a"]) == carrier.pull(["a"]) == []
    assert caplog.text.count("the SuperLink is gone") == 1
    carrier._grid._runtime_client.gone = False
    assert [one.name for one in carrier.pull(["a"])] == ["a"]
    carrier._grid._runtime_client.gone = True
    monkeypatch.setattr(grid_module, "GIVE_UP", 0.0)
    with pytest.raises(RunError, match="deploy again"):
        carrier.pull(["b"])


def test_a_reply_that_is_not_fetched_is_lost_and_may_be_asked_for_again(carrier: FlowerCarrier) -> None:
    (lost,) = carrier.pull(["broken"])
    assert (lost.name, lost.lost) == ("broken", True)


@pytest.mark.network
def test_the_grid_of_flower_is_what_the_carrier_takes_it_for() -> None:
    grids = pytest.importorskip("flwr.superlink.grid", reason="needs flwr")
    grid, client = grids.HttpGrid(token="t"), object()
    grid._client = client
    assert grid._runtime_client is client
