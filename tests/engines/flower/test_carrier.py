"""Flower's Grid behind the carrier, with a Grid of our own."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from sparsona.engines.flower.carrier import FlowerCarrier, Returned


class Grid:
    """Has a reply to every message. That to `stuck` takes until `go` is set."""

    def __init__(self) -> None:
        self.go, self.problem = threading.Event(), False

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str | None]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        (name,) = message_ids
        if self.problem:
            raise OSError("the SuperLink is gone")
        if name == "stuck":
            self.go.wait()
        return [name]


@pytest.fixture
def carrier(monkeypatch: pytest.MonkeyPatch) -> FlowerCarrier:
    monkeypatch.setattr(FlowerCarrier, "_answer", lambda self, message: Returned(message))
    return FlowerCarrier(Grid())


def test_a_reply_that_does_not_arrive_holds_up_no_other(carrier: FlowerCarrier) -> None:
    assert [one.name for one in carrier.pull(["stuck", "a"])] == ["a"]
    assert [one.name for one in carrier.pull(["stuck", "b"])] == ["b"]
    carrier._grid.go.set()  # type: ignore[attr-defined]
    assert [one.name for one in carrier.pull(["stuck"])] == ["stuck"]


def test_a_problem_of_the_grid_is_not_swallowed(carrier: FlowerCarrier) -> None:
    carrier._grid.problem = True  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="gone"):
        carrier.pull(["a"])
