"""The queue of turns that all engines with workers take from."""

from __future__ import annotations

import logging

import pytest

from sparsona.engines.turns import DEPTH, MAX_DEATHS, JobGroup, Pace, TurnQueue
from sparsona.errors import SparsonaError
from sparsona.federation.worker import Job
from sparsona.message import Stamp


def turns(count: int) -> list[Job]:
    return [Job("fit", f"c{k}", Stamp(0, 0), ()) for k in range(count)]


def names(queue: TurnQueue) -> list[str]:
    found = []
    while queue:
        found.append(queue.take().names)
    return found


def test_short_turns_go_together_and_ahead_long_ones_alone() -> None:
    pace = Pace(worthwhile=0.02, most=4)
    assert (pace.together, pace.depth) == (1, 1)
    queue = TurnQueue(turns(9), pace)
    for _ in range(50):
        pace.took(0.001)
    assert (pace.together, pace.depth) == (4, DEPTH)
    assert names(queue) == ["c0", "c1, c2, c3, c4", "c5, c6, c7, c8"]
    for _ in range(50):
        pace.took(1.0)
    assert (pace.together, pace.depth) == (1, 1)


def test_what_a_dead_worker_had_comes_first(caplog: pytest.LogCaptureFixture) -> None:
    queue = TurnQueue(turns(4), Pace(0.0, 1))
    lost = [queue.take(), queue.take()]
    with caplog.at_level(logging.WARNING):
        queue.repeat_lost(lost, "a worker on mars", "signal 9")
    assert "a worker on mars died (signal 9) in the turn of c0, which is run again" in caplog.text
    assert names(queue) == ["c0", "c1", "c2", "c3"]
    assert [group.deaths for group in lost] == [1, 0]
    with pytest.raises(IndexError):
        queue.take()


def test_a_turn_in_which_workers_die_is_given_up_and_an_idle_death_is_nothing() -> None:
    queue, group = TurnQueue([], Pace(0.0, 1)), JobGroup(tuple(turns(2)))
    queue.repeat_lost([], "a worker", "signal 9")
    assert not queue
    for _ in range(MAX_DEATHS - 1):
        queue.repeat_lost([group], "a worker", "signal 9")
        assert queue.take() is group
    with pytest.raises(SparsonaError, match=r"in the turn of c0, c1: .*--workers"):
        queue.repeat_lost([group], "a worker", "signal 9")
